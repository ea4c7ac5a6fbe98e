// Whether the operator has drained the daemon: what stands goes on, nothing new begins. Not the end
// of the daemon, which is Broker::Drain.
#ifndef MRD_DAEMON_BROKER_DRAIN_H_
#define MRD_DAEMON_BROKER_DRAIN_H_

#include <atomic>
#include <chrono>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "daemon/mutex.h"

namespace mrd::broker {

// Thread-safe. Asking takes no lock while it is off.
class DrainSwitch {
 public:
  using Clock = std::chrono::steady_clock;

  struct View {
    std::chrono::system_clock::time_point since;
    std::string reason;
    std::optional<Clock::time_point> deadline;  // Nothing: there is none.
  };

  // Since when it is drained stays where it was on already.
  void TurnOn(std::string reason, std::optional<Clock::time_point> deadline) MRD_EXCLUDES(mutex_);
  // False: it was off.
  bool TurnOff() MRD_EXCLUDES(mutex_);
  bool on() const { return on_.load(std::memory_order_acquire); }
  std::optional<View> view() const MRD_EXCLUDES(mutex_);
  // DRAINING, with `what` is refused ("no new sessions"), where it is on.
  absl::Status Check(const char* what) const MRD_EXCLUDES(mutex_);
  // True once: there is a deadline, and it is over.
  bool TakeOverdue(Clock::time_point now) MRD_EXCLUDES(mutex_);

 private:
  std::atomic<bool> on_{false};
  mutable Mutex mutex_;
  std::optional<View> view_ MRD_GUARDED_BY(mutex_);
  bool told_overdue_ MRD_GUARDED_BY(mutex_) = false;
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_DRAIN_H_
