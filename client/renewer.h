// Renews a session's leases in the background, all in one call, in a third of the shortest ttl.
#ifndef MRD_CLIENT_RENEWER_H_
#define MRD_CLIENT_RENEWER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "client/mutex.h"
#include "client/session_state.h"

namespace mrd::internal {

// Thread-safe, except construction and destruction. Its thread starts with the first lease that has
// a ttl, and sleeps while there is none.
class Renewer final {
 public:
  using Clock = std::chrono::steady_clock;
  using Ttl = std::chrono::nanoseconds;
  // One call: the shortest ttl of the leases there are; nothing: there is none. It takes no longer
  // than `timeout`, and fails once the session has ended.
  using Renew =
      std::function<absl::StatusOr<std::optional<Ttl>>(std::chrono::milliseconds timeout)>;

  Renewer(Renew renew, std::shared_ptr<const SessionState> state);
  // Waits for a call under way. REQUIRES: not a forked child.
  ~Renewer();
  Renewer(const Renewer&) = delete;
  Renewer& operator=(const Renewer&) = delete;

  // A lease was granted with this ttl, which is positive.
  void Granted(Ttl ttl);

  // The daemon was away, and no lease was renewed meanwhile.
  void RenewNow();

 private:
  void Run();
  void RenewBefore(Clock::time_point when) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Renew renew_;
  const std::shared_ptr<const SessionState> state_;
  Mutex mutex_;
  CondVar changed_;
  std::optional<Clock::time_point> next_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_RENEWER_H_
