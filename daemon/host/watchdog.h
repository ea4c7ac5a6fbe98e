// Feeds the service manager's watchdog for as long as the whole daemon answers.
#ifndef MRD_DAEMON_HOST_WATCHDOG_H_
#define MRD_DAEMON_HOST_WATCHDOG_H_

#include <systemd/sd-event.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "daemon/ipc/event.h"

namespace mrd::host {

// Main thread. The main loop feeds, so that a loop that is stuck does not; and it feeds only once
// those that serve calls have answered what it asked them, so that a loop does not speak for them.
class Watchdog {
 public:
  struct Parts {
    // Asks those that serve calls: they call back once, from a thread of theirs, at any time, also
    // when this is gone; or never.
    std::function<void(std::function<void()> answer)> ping;
    std::function<void()> feed;
  };

  // Feeds at least once in half of `timeout`, which is more than zero. `loop` outlives it.
  Watchdog(sd_event* loop, std::chrono::microseconds timeout, Parts parts);
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void OnTime();
  void Ask();

  const std::chrono::milliseconds every_;
  const Parts parts_;
  std::shared_ptr<std::atomic<bool>> answered_;  // Of the ping under way; shared with it.
  int unanswered_ = 0;                           // Times that it was looked for in vain.
  ipc::EventSource timer_;
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_WATCHDOG_H_
