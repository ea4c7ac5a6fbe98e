// The devices as last read: reading them afresh goes to the kernel, which is not for each of a
// client's calls, nor for a thread that must not block.
#ifndef MRD_DAEMON_BROKER_DEVICE_CATALOG_H_
#define MRD_DAEMON_BROKER_DEVICE_CATALOG_H_

#include <chrono>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "daemon/broker/lease.h"
#include "daemon/broker/registrar.h"
#include "daemon/fabric/fabric.h"
#include "daemon/mutex.h"

namespace mrd::broker {

// Called exactly once, from any thread.
using DevicesDone = absl::AnyInvocable<void(const std::vector<DeviceRef>&)>;

// Thread-safe. All lists are by name.
class DeviceCatalog {
 public:
  // Both outlive the catalog's use.
  DeviceCatalog(fabric::Fabric& fabric, Registrar& registrar)
      : fabric_(fabric), registrar_(registrar) {}

  // However old.
  std::vector<DeviceRef> Known();
  // Not older than a second, or than the call where `anew` says so. May block.
  std::vector<DeviceRef> Read(bool anew = false);
  // It was given up: not listed from now on. Never blocks.
  void Drop(const fabric::DeviceInfo& device);
  // As Read, for a thread that must not block: `done` is called at once where such a list is at
  // hand, else by a thread of the registrar. Calls that come together share one look.
  void List(DevicesDone done);
  // Has the list read anew, by a thread of the registrar, where it is older than a second.
  void Renew();

 private:
  bool FreshLocked() const MRD_REQUIRES(mutex_);

  fabric::Fabric& fabric_;
  Registrar& registrar_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<DeviceRef> devices_ MRD_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point read_ MRD_GUARDED_BY(mutex_);
  bool reading_ MRD_GUARDED_BY(mutex_) = false;  // By one thread; others wait for it.
  std::vector<DevicesDone> wanted_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_DEVICE_CATALOG_H_
