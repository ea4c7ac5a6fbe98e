// What was destroyed while the daemon was away: it is ended when the daemon is back, and nobody
// waits for that.
#ifndef MRD_CLIENT_LEFTOVERS_H_
#define MRD_CLIENT_LEFTOVERS_H_

#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "client/mutex.h"
#include "client/rpc.h"

namespace mrd::internal {

// Thread-safe.
class Leftovers final {
 public:
  Leftovers() = default;
  Leftovers(const Leftovers&) = delete;
  Leftovers& operator=(const Leftovers&) = delete;

  void AddLease(uint64_t lease_id);
  void AddEndpoint(uint64_t endpoint_id);

  bool empty() const;
  // The session was lost, and they with it.
  void Drop();
  // Ends them, best effort: endpoints, then leases, `most` of them a call. What cannot be ended
  // since the daemon has gone again stays.
  void End(Rpc& rpc, size_t most, Rpc::Duration timeout);

 private:
  struct Ids {
    std::vector<uint64_t> leases;
    std::vector<uint64_t> endpoints;
  };

  mutable Mutex mutex_;
  Ids ids_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_LEFTOVERS_H_
