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
  const auto until = Clock::now() + timeout;
  MutexLock lock(&mutex_);
  while (!ended_.load(std::memory_order_relaxed)) {
    if (Clock::now() >= until) return false;
    changed_.WaitUntil(&mutex_, until);
  }
  return true;
}

uint64_t SessionState::epoch() const {
  MutexLock lock(&mutex_);
  return epoch_;
}

uint64_t SessionState::NextEpoch() const {
  MutexLock lock(&mutex_);
  return epoch_ + 2 - epoch_ % 2;
}

void SessionState::Connect(std::string token) {
  auto shared = std::make_shared<const std::string>(std::move(token));
  MutexLock lock(&mutex_);
  epoch_ += 2 - epoch_ % 2;
  token_ = std::move(shared);
  changed_.NotifyAll();
}

void SessionState::Disconnect() {
  MutexLock lock(&mutex_);
  if (epoch_ % 2 != 0) return;
  ++epoch_;
  changed_.NotifyAll();
}

std::optional<SessionState::Ticket> SessionState::Await(Clock::time_point until) const {
  if (Forked()) return std::nullopt;
  MutexLock lock(&mutex_);
  while (!ended_.load(std::memory_order_relaxed)) {
    if (epoch_ % 2 == 0) return Ticket{epoch_, token_};
    if (Clock::now() >= until) return std::nullopt;
    changed_.WaitUntil(&mutex_, until);
  }
  return std::nullopt;
}

bool SessionState::Current(uint64_t epoch) const {
  MutexLock lock(&mutex_);
  return epoch_ == epoch && !ended_.load(std::memory_order_relaxed);
}

bool SessionState::WaitChange(uint64_t epoch, std::chrono::milliseconds timeout) const {
  const auto until = Clock::now() + timeout;
  MutexLock lock(&mutex_);
  while (epoch_ == epoch && !ended_.load(std::memory_order_relaxed)) {
    if (Clock::now() >= until) return false;
    changed_.WaitUntil(&mutex_, until);
  }
  return true;
}

}  // namespace mrd::internal
