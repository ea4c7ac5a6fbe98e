// The side of the ratios that is judged: a client of the daemon.
#ifndef MRD_TESTS_BENCH_MRD_SIDE_H_
#define MRD_TESTS_BENCH_MRD_SIDE_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/session.h"

namespace mrd::bench {

// Ends the program where something fails.
class MrdSide {
 public:
  // Attaches to the daemon of `socket_dir`, waiting for it to come up.
  MrdSide(const std::string& socket_dir, const std::string& device);

  const Client& client() const { return client_; }

  Buffer MakeBuffer(uint64_t size) const;
  // As rdma_reg_write has it.
  std::vector<Region> Register(std::span<const Range> ranges) const;
  Region Register(const Range& range) const;
  void Deregister(std::span<Region> regions) const;
  // A call that is admitted like any other and does nothing: ReleaseBuffers of none. It goes the
  // library's way, over a connection of its own, since the public interface has no such call.
  void EmptyCall() const;

 private:
  const Client client_;
  const std::shared_ptr<internal::Session> empty_;
  RegisterOptions options_;
};

// Retries for some seconds while nothing listens.
Client AttachWhenUp(const AttachOptions& options);

}  // namespace mrd::bench

#endif  // MRD_TESTS_BENCH_MRD_SIDE_H_
