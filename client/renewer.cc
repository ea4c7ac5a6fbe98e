#include "client/renewer.h"

#include <algorithm>
#include <utility>

#include "client/library_thread.h"

namespace mrd::internal {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestCall{5000};
constexpr milliseconds kShortestCall{100};
constexpr milliseconds kPause{200};  // After a call that failed.
// Between two calls, however short the ttl: a lease of a nanosecond is nobody's to keep.
constexpr milliseconds kLeastPause{1};

// When leases that last so long from now on are to be renewed.
Renewer::Clock::time_point DueOf(Renewer::Ttl ttl) {
  return Renewer::Clock::now() + std::max<Renewer::Ttl>(ttl / 3, kLeastPause);
}

}  // namespace

Renewer::Renewer(Renew renew, std::shared_ptr<const SessionState> state)
    : renew_(std::move(renew)), state_(std::move(state)) {}

Renewer::~Renewer() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void Renewer::Granted(Ttl ttl) {
  MutexLock lock(&mutex_);
  RenewBefore(DueOf(ttl));
  if (std::exchange(started_, true)) return;
  thread_ = StartThread([this] { Run(); });
}

void Renewer::RenewNow() {
  MutexLock lock(&mutex_);
  // Else there is nothing to renew, or a call under way, which goes on as soon as this is told.
  if (next_) RenewBefore(Clock::now());
}

void Renewer::RenewBefore(Clock::time_point when) {
  if (next_ && *next_ <= when) return;
  next_ = when;
  changed_.NotifyAll();
}

void Renewer::Run() {
  milliseconds timeout = kLongestCall;
  for (;;) {
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && (!next_ || Clock::now() < *next_)) {
        changed_.WaitUntil(&mutex_, next_.value_or(Clock::now() + std::chrono::hours(1)));
      }
      if (stopping_) return;
      next_ = std::nullopt;
    }
    const auto shortest = renew_(timeout);
    if (!shortest.ok() && !state_->Check().ok()) return;
    MutexLock lock(&mutex_);
    if (!shortest.ok()) {
      RenewBefore(Clock::now() + kPause);
    } else if (*shortest) {
      RenewBefore(DueOf(**shortest));
      timeout = std::clamp(std::chrono::duration_cast<milliseconds>(**shortest / 3), kShortestCall,
                           kLongestCall);
    }
  }
}

}  // namespace mrd::internal
