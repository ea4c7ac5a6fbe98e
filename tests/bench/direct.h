// The other side of the ratios: verbs called by the program itself, without a daemon.
#ifndef MRD_TESTS_BENCH_DIRECT_H_
#define MRD_TESTS_BENCH_DIRECT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/fabric/verbs/api.h"

namespace mrd::bench {

// A device of this machine, opened by this process, and a protection domain on it. Ends the program
// where something fails.
class Direct {
 public:
  Direct(std::unique_ptr<fabric::verbs::Api> api, const std::string& device);
  ~Direct();
  Direct(const Direct&) = delete;
  Direct& operator=(const Direct&) = delete;

  // As regions of rdma_reg_write: LOCAL_WRITE | REMOTE_WRITE, at its own address.
  ibv_mr* Register(void* data, uint64_t length);
  void Deregister(ibv_mr* mr);

 private:
  const std::unique_ptr<fabric::verbs::Api> api_;
  ibv_device** devices_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
};

// How a process that maps memory afresh may bring its pages into the page table before it registers
// them.
enum class Populate { kNot, kMapPopulate, kMadvise };
inline constexpr Populate kEachPopulate[] = {Populate::kNot, Populate::kMapPopulate,
                                             Populate::kMadvise};
const char* NameOf(Populate populate);

// A shared mapping of `fd` at a place of the kernel's choice, for as long as this object lives.
class FreshMapping {
 public:
  FreshMapping(int fd, uint64_t length, Populate populate);
  ~FreshMapping();
  FreshMapping(const FreshMapping&) = delete;
  FreshMapping& operator=(const FreshMapping&) = delete;

  void* data() const { return data_; }

 private:
  void* data_;
  const uint64_t length_;
};

}  // namespace mrd::bench

#endif  // MRD_TESTS_BENCH_DIRECT_H_
