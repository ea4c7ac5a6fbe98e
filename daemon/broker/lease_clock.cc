#include "daemon/broker/lease_clock.h"

namespace mrd::broker {

void LeaseClock::Watch(uint64_t session_id, Clock::time_point at) {
  {
    MutexLock lock(mutex_);
    const auto [known, fresh] = by_session_.emplace(session_id, at);
    if (!fresh) {
      if (known->second <= at) return;
      by_time_.erase({known->second, session_id});
      known->second = at;
    }
    by_time_.emplace(at, session_id);
    if (by_time_.begin()->second != session_id) return;
  }
  if (wake_) wake_();
}

void LeaseClock::Forget(uint64_t session_id) {
  MutexLock lock(mutex_);
  const auto known = by_session_.find(session_id);
  if (known == by_session_.end()) return;
  by_time_.erase({known->second, session_id});
  by_session_.erase(known);
}

std::vector<uint64_t> LeaseClock::TakeDue(Clock::time_point now) {
  std::vector<uint64_t> due;
  MutexLock lock(mutex_);
  while (!by_time_.empty() && by_time_.begin()->first <= now) {
    due.push_back(by_time_.begin()->second);
    by_session_.erase(due.back());
    by_time_.erase(by_time_.begin());
  }
  return due;
}

std::optional<LeaseClock::Clock::time_point> LeaseClock::next() const {
  MutexLock lock(mutex_);
  if (by_time_.empty()) return std::nullopt;
  return by_time_.begin()->first;
}

}  // namespace mrd::broker
