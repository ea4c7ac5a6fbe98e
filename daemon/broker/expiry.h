// When the leases of one session lapse.
#ifndef MRD_DAEMON_BROKER_EXPIRY_H_
#define MRD_DAEMON_BROKER_EXPIRY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "daemon/broker/lease.h"

namespace mrd::broker {

// Not thread-safe: guarded by its session's lock. Renewing all leases is one step, however many
// they are: what that means for one of them is looked at when it would lapse.
class Expiries {
 public:
  using Clock = std::chrono::steady_clock;

  // REQUIRES: lease.ttl > 0, and it stays where it is until Remove.
  void Add(Lease& lease, Clock::time_point now);
  void Remove(Lease& lease);

  void RenewAll(Clock::time_point now) { all_renewed_ = now; }
  void Renew(Lease& lease, Clock::time_point now) const { lease.renewed = now; }

  // What is left of a lease that was added; zero: it is about to lapse.
  std::chrono::nanoseconds Remaining(const Lease& lease, Clock::time_point now) const;
  // When one may lapse next; never before it. Nothing: there is none.
  std::optional<Clock::time_point> next() const;
  // The ids of those that lapse now, looking at `most`; they are to be removed. More may be left:
  // next() is past then.
  std::vector<uint64_t> Lapsed(Clock::time_point now, size_t most);

  size_t size() const { return by_time_.size(); }
  std::optional<std::chrono::nanoseconds> shortest_ttl() const;

 private:
  using Entry = std::pair<Clock::time_point, Lease*>;

  Clock::time_point DueOf(const Lease& lease) const;

  absl::btree_set<Entry> by_time_;  // By Lease::due, which a renewal leaves behind.
  absl::btree_map<std::chrono::nanoseconds, size_t> ttls_;
  Clock::time_point all_renewed_{};
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_EXPIRY_H_
