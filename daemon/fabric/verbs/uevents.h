// The kernel's uevents of RDMA devices, by libudev's monitor "kernel": the one that hears the
// kernel itself and not the udev daemon, which does not run in a container.
#ifndef MRD_DAEMON_FABRIC_VERBS_UEVENTS_H_
#define MRD_DAEMON_FABRIC_VERBS_UEVENTS_H_

#include "daemon/fabric/verbs/api.h"

struct udev;
struct udev_monitor;

namespace mrd::fabric::verbs {

// Thread safety: one thread.
class Uevents {
 public:
  Uevents() = default;
  ~Uevents();
  Uevents(const Uevents&) = delete;
  Uevents& operator=(const Uevents&) = delete;

  // See Api::OpenUevents and Api::ReadUevent.
  Result<int> Open();
  Result<Uevent> Read();

 private:
  udev* udev_ = nullptr;
  udev_monitor* monitor_ = nullptr;
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_UEVENTS_H_
