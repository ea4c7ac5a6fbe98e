#include "client/session_state.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "mrd/v1/status.h"

namespace mrd::internal {

SessionState::SessionState() : pid_(getpid()) {}

bool SessionState::Forked() const { return getpid() != pid_; }

absl::Status SessionState::Check() const {
  if (Forked()) {
    v1::ErrorDetail detail;
    detail.set_reason(v1::SESSION_UNKNOWN);
    detail.set_advice(kForkAdvice);
    return WithDetail(absl::FailedPreconditionError(
                          "the session belongs to process " + std::to_string(pid_) +
                          "; a forked child has none, nor the regions in it. " + detail.advice()),
                      detail);
  }
  if (!ended_.load(std::memory_order_acquire)) return absl::OkStatus();
  MutexLock lock(&mutex_);
  return why_;
}

void SessionState::End(absl::Status why) {
  MutexLock lock(&mutex_);
  if (ended_.load(std::memory_order_relaxed)) return;
  why_ = std::move(why);
  ended_.store(true, std::memory_order_release);
  changed_.NotifyAll();
}

bool SessionState::WaitEnded(std::chrono::milliseconds timeout) const {
  const auto until = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(&mutex_);
  while (!ended_.load(std::memory_order_relaxed)) {
    if (std::chrono::steady_clock::now() >= until) return false;
    changed_.WaitUntil(&mutex_, until);
  }
  return true;
}

}  // namespace mrd::internal
