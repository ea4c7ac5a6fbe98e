#include "daemon/fabric/verbs/uevents.h"

#include <errno.h>
#include <libudev.h>

namespace mrd::fabric::verbs {
namespace {

int Last() { return errno != 0 ? errno : EIO; }

std::string Text(const char* text) { return text != nullptr ? text : ""; }

}  // namespace

Uevents::~Uevents() {
  if (monitor_ != nullptr) udev_monitor_unref(monitor_);
  if (udev_ != nullptr) udev_unref(udev_);
}

Result<int> Uevents::Open() {
  errno = 0;
  udev_ = udev_new();
  if (udev_ == nullptr) return {-1, Last()};
  monitor_ = udev_monitor_new_from_netlink(udev_, "kernel");
  if (monitor_ == nullptr) return {-1, Last()};
  // "infiniband" matches that subsystem only: the kernel filters by the whole name's hash.
  for (const char* subsystem : {"infiniband", "infiniband_verbs"}) {
    const int result =
        udev_monitor_filter_add_match_subsystem_devtype(monitor_, subsystem, nullptr);
    if (result < 0) return {-1, -result};
  }
  if (const int result = udev_monitor_enable_receiving(monitor_); result < 0) return {-1, -result};
  return {udev_monitor_get_fd(monitor_), 0};
}

Result<Uevent> Uevents::Read() {
  errno = 0;
  udev_device* const device = udev_monitor_receive_device(monitor_);
  if (device == nullptr) return {{}, errno != 0 ? errno : EAGAIN};
  Uevent event{Text(udev_device_get_action(device)), Text(udev_device_get_sysname(device))};
  udev_device_unref(device);
  return {std::move(event), 0};
}

}  // namespace mrd::fabric::verbs
