#include "daemon/broker/expiry.h"

#include <algorithm>

namespace mrd::broker {

void Expiries::Add(Lease& lease, Clock::time_point now) {
  lease.renewed = now;
  lease.due = now + lease.ttl;
  by_time_.emplace(lease.due, &lease);
  ++ttls_[lease.ttl];
}

void Expiries::Remove(Lease& lease) {
  by_time_.erase({lease.due, &lease});
  const auto ttl = ttls_.find(lease.ttl);
  if (--ttl->second == 0) ttls_.erase(ttl);
}

Expiries::Clock::time_point Expiries::DueOf(const Lease& lease) const {
  return std::max(lease.renewed, all_renewed_) + lease.ttl;
}

std::chrono::nanoseconds Expiries::Remaining(const Lease& lease, Clock::time_point now) const {
  return std::max<std::chrono::nanoseconds>(DueOf(lease) - now, std::chrono::nanoseconds(0));
}

std::optional<Expiries::Clock::time_point> Expiries::next() const {
  if (by_time_.empty()) return std::nullopt;
  // Where all were renewed lately none needs to be looked at, however old its place is: a session
  // that goes on renewing costs nothing a lease.
  return std::max(by_time_.begin()->first, all_renewed_ + ttls_.begin()->first);
}

std::vector<uint64_t> Expiries::Lapsed(Clock::time_point now, size_t most) {
  std::vector<uint64_t> lapsed;
  if (const auto first = next(); !first || *first > now) return lapsed;
  std::vector<Lease*> renewed;
  auto it = by_time_.begin();
  for (; most > 0 && it != by_time_.end() && it->first <= now; --most) {
    Lease& lease = *it->second;
    if (DueOf(lease) <= now) {
      lapsed.push_back(lease.view.id);
      ++it;
    } else {
      renewed.push_back(&lease);
      it = by_time_.erase(it);
    }
  }
  for (Lease* const lease : renewed) {
    lease->due = DueOf(*lease);
    by_time_.emplace(lease->due, lease);
  }
  return lapsed;
}

std::optional<std::chrono::nanoseconds> Expiries::shortest_ttl() const {
  if (ttls_.empty()) return std::nullopt;
  return ttls_.begin()->first;
}

}  // namespace mrd::broker
