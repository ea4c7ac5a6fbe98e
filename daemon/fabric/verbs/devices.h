// The RDMA devices of the host: each is opened when it is first seen and kept open until it goes.
#ifndef MRD_DAEMON_FABRIC_VERBS_DEVICES_H_
#define MRD_DAEMON_FABRIC_VERBS_DEVICES_H_

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/fabric/event_loop.h"
#include "daemon/fabric/verbs/api.h"
#include "daemon/fabric/verbs/cm_contexts.h"
#include "daemon/fabric/verbs/device.h"
#include "daemon/mutex.h"

namespace mrd::fabric::verbs {

// Thread safety: any thread, but for Refresh.
class Devices {
 public:
  using DevicePtr = std::shared_ptr<Device>;
  struct Changes {
    std::vector<DevicePtr> removed, added;
    std::vector<std::string> failed;  // Of those removed: that are there still.
  };

  // Opens all. One that cannot be opened is logged and left out; none at all is an error, or is
  // logged where one may come.
  static absl::StatusOr<std::unique_ptr<Devices>> Open(Api& api, bool one_may_come = false);
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // By name.
  std::vector<DevicePtr> all() const MRD_EXCLUDES(mutex_);
  // Null: none of that name, or of that context, is open.
  DevicePtr Find(const std::string& name) const MRD_EXCLUDES(mutex_);
  DevicePtr Find(const ibv_context* context) const MRD_EXCLUDES(mutex_);
  // Why there is none of that name: DEVICE_UNKNOWN or DEVICE_REMOVED.
  absl::Status Missing(const std::string& name) const MRD_EXCLUDES(mutex_);

  // Looks anew. Gives up the devices that are not there any more and those that have failed, and
  // opens those that are new, one that failed and came back among them. One call at a time.
  Changes Refresh() MRD_EXCLUDES(mutex_);

 private:
  explicit Devices(Api& api) : api_(api), contexts_(std::make_shared<CmContexts>(api)) {}

  // Why Refresh has opened none.
  absl::Status NoneOpened() const;
  void Look(Changes* changes);
  void GiveUpMissing(const std::set<const ibv_device*>& present, Changes* changes);
  void GiveUp(const DevicePtr& device, Changes* changes) MRD_REQUIRES(mutex_);
  // librdmacm has opened a device anew that it had mistaken for one that is gone.
  void GiveUpForsaken(const ibv_context* fresh, Changes* changes) MRD_EXCLUDES(mutex_);
  void OpenOfRdmaCm(bool expected, Changes* changes);
  void OpenOthers(ibv_device** list, Changes* changes);
  void Add(ibv_context* context, bool endpoints, absl::AnyInvocable<void(bool gone)> close,
           Changes* changes);
  void Failed(const std::string& name, int index, absl::Status status);
  // Whether the list tells devices apart as the lists before it did.
  bool Trustworthy(ibv_device** list) const;

  Api& api_;
  // Shared with the devices, the last of which may end after this.
  const std::shared_ptr<CmContexts> contexts_;
  mutable Mutex mutex_;
  std::vector<DevicePtr> devices_ MRD_GUARDED_BY(mutex_);  // By name.
  std::set<std::string> gone_ MRD_GUARDED_BY(mutex_);      // Names that were here once.

  // Refresh's own.
  uint64_t generation_ = 1;                         // Of the openings of this look.
  std::set<std::pair<std::string, int>> told_;      // Devices whose failure was logged.
  std::set<std::pair<std::string, int>> given_up_;  // Failed ones that we opened, until they go.
  std::set<const ibv_device*> of_rdma_cm_;          // In its last list.
  std::vector<std::string> failures_;               // Of this look.
  absl::Status first_failure_;

  // All lists of devices are made by one thread. librdmacm before rdma-core 52 sorts them by
  // address with a comparison that overflows (dev_cmp; mended in c4a5ac8bb): with addresses of
  // several of malloc's arenas, which are those of several threads, it takes a device that is there
  // for one that has gone, and opens it once more.
  EventLoop lister_{"mrd-devices"};
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_DEVICES_H_
