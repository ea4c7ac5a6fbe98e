// Which sessions have a lease that may lapse, and when to look at them.
#ifndef MRD_DAEMON_BROKER_LEASE_CLOCK_H_
#define MRD_DAEMON_BROKER_LEASE_CLOCK_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "daemon/mutex.h"

namespace mrd::broker {

// Thread-safe. One entry a session, however many leases it has.
class LeaseClock {
 public:
  using Clock = std::chrono::steady_clock;

  // Called, from any thread, when what is next has come nearer; must not block. Set before the
  // first session is watched.
  void SetWake(std::function<void()> wake) { wake_ = std::move(wake); }

  // The session is to be looked at then, or sooner where that was said before.
  void Watch(uint64_t session_id, Clock::time_point at);
  void Forget(uint64_t session_id);

  // Sessions whose time has come; they are watched no more.
  std::vector<uint64_t> TakeDue(Clock::time_point now);
  // Nothing: no session is watched.
  std::optional<Clock::time_point> next() const;

 private:
  mutable Mutex mutex_;
  absl::btree_set<std::pair<Clock::time_point, uint64_t>> by_time_ MRD_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint64_t, Clock::time_point> by_session_ MRD_GUARDED_BY(mutex_);
  std::function<void()> wake_;
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_LEASE_CLOCK_H_
