// Devices that come and go, as the kernel's uevents tell it to the main loop.
#ifndef MRD_DAEMON_HOST_HOTPLUG_H_
#define MRD_DAEMON_HOST_HOTPLUG_H_

#include <systemd/sd-event.h>

#include <functional>

#include "daemon/fabric/verbs/api.h"
#include "daemon/ipc/event.h"

namespace mrd::host {

// Main thread. Which devices there are is looked up and not taken from the events: they only say
// when, so that one that was lost, or comes late, does no harm.
class HotPlug {
 public:
  // Calls `look`, which must not block, after each batch of uevents. Where the kernel gives none,
  // it says so and looks every few seconds instead. `loop` and `api` outlive this.
  HotPlug(sd_event* loop, fabric::verbs::Api& api, std::function<void()> look);
  HotPlug(const HotPlug&) = delete;
  HotPlug& operator=(const HotPlug&) = delete;

 private:
  void OnReadable();
  void OnTime();

  fabric::verbs::Api& api_;
  const std::function<void()> look_;
  bool polls_ = false;
  ipc::EventSource uevents_;
  ipc::EventSource again_;
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_HOTPLUG_H_
