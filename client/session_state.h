// Whether a session can be used, and why not: known to every part that makes calls in it.
// Thread-safe.
#ifndef MRD_CLIENT_SESSION_STATE_H_
#define MRD_CLIENT_SESSION_STATE_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/mutex.h"

namespace mrd::internal {

// What a process can do that has no session since it was forked.
inline constexpr char kForkAdvice[] =
    "Fork before the first Client::Attach, or execute a program of its own that attaches.";

// A session is connected, or waits for the daemon to come back, or has ended. Epochs count the
// connections: each is greater than those before.
class SessionState final {
 public:
  using Clock = std::chrono::steady_clock;

  // What a call is made with.
  struct Ticket {
    uint64_t epoch = 0;
    std::shared_ptr<const std::string> token;
  };

  // Waits for its first connection.
  SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  // OK while the session lives, connected or not, and this is the process that attached; else what
  // End() was given, or FAILED_PRECONDITION in a forked child.
  absl::Status Check() const;

  // In a child of the process that attached: locks may have been copied locked and threads are
  // gone, so nothing of the session but its descriptors may be touched.
  bool Forked() const;

  // The session has ended; the first cause stays.
  void End(absl::Status why);

  // Waits until the session has ended, at most `timeout`; whether it has.
  bool WaitEnded(std::chrono::milliseconds timeout) const;

  // Odd while there is no connection.
  uint64_t epoch() const;
  // The epoch that the next Connect() begins. REQUIRES: called by the one thread that connects.
  uint64_t NextEpoch() const;
  // Calls go out again, with this token.
  void Connect(std::string token);
  // Calls wait. Again: nothing happens.
  void Disconnect();

  // Waits for a connection. Nothing: there was none until then, or the session has ended (Check()).
  std::optional<Ticket> Await(Clock::time_point until) const;
  // Whether the connection of that epoch is, as far as is known, the one there is.
  bool Current(uint64_t epoch) const;
  // Waits until it is not, at most `timeout`; whether that is so.
  bool WaitChange(uint64_t epoch, std::chrono::milliseconds timeout) const;

  // The operator has drained the daemon: that it refuses does not mean that it ends.
  void SetDrained() { drained_.store(true, std::memory_order_relaxed); }
  bool drained() const { return drained_.load(std::memory_order_relaxed); }

 private:
  const pid_t pid_;
  std::atomic<bool> ended_ = false;
  std::atomic<bool> drained_ = false;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
  // Even: connected.
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 1;
  std::shared_ptr<const std::string> token_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_SESSION_STATE_H_
