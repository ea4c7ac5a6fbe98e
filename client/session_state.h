// Whether a session can be used, and why not: known to every part that makes calls in it.
// Thread-safe.
#ifndef MRD_CLIENT_SESSION_STATE_H_
#define MRD_CLIENT_SESSION_STATE_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/mutex.h"

namespace mrd::internal {

// What a process can do that has no session since it was forked.
inline constexpr char kForkAdvice[] =
    "Fork before the first Client::Attach, or execute a program of its own that attaches.";

class SessionState final {
 public:
  SessionState();
  SessionState(const SessionState&) = delete;
  SessionState& operator=(const SessionState&) = delete;

  // OK while the session lives and this is the process that attached; else what End() was given, or
  // FAILED_PRECONDITION in a forked child.
  absl::Status Check() const;

  // In a child of the process that attached: locks may have been copied locked and threads are
  // gone, so nothing of the session but its descriptors may be touched.
  bool Forked() const;

  // The session has ended; the first cause stays.
  void End(absl::Status why);

  // Waits until the session has ended, at most `timeout`; whether it has.
  bool WaitEnded(std::chrono::milliseconds timeout) const;

 private:
  const pid_t pid_;
  std::atomic<bool> ended_ = false;
  mutable Mutex mutex_;
  mutable CondVar changed_;
  absl::Status why_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_SESSION_STATE_H_
