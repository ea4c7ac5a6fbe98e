#include "daemon/fabric/verbs/verbs_fabric.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/fabric/verbs/adopted_device.h"
#include "daemon/fabric/verbs/cm.h"
#include "daemon/fabric/verbs/connector.h"
#include "daemon/fabric/verbs/devices.h"
#include "daemon/fabric/verbs/listener.h"

namespace mrd::fabric {
namespace verbs {
namespace {

class VerbsFabric final : public Fabric {
 public:
  VerbsFabric(Api& api, std::unique_ptr<verbs::Devices> devices)
      : api_(api), devices_(std::move(devices)), cm_(api, *devices_), connector_(cm_) {}

  std::string name() const override { return "verbs"; }

  std::vector<DeviceInfo> Devices() override {
    std::vector<DeviceInfo> infos;
    for (const auto& device : devices_->all()) infos.push_back(device->Describe());
    return infos;
  }

  void Watch(std::function<void()> changed) override { cm_.SetChanged(std::move(changed)); }

  DeviceChanges Refresh() override {
    const verbs::Devices::Changes found = devices_->Refresh();
    DeviceChanges changes;
    changes.failed = found.failed;
    for (const auto& device : found.removed) {
      cm_.Forget(device);
      changes.removed.push_back(device->info());
    }
    for (const auto& device : found.added) {
      cm_.Watch(device);
      changes.added.push_back(device->Describe());
    }
    return changes;
  }

  absl::StatusOr<Keepable> Keep(const DeviceInfo& info) override {
    const auto device = devices_->Find(info.name);
    if (!device || device->info().generation != info.generation) {
      return absl::NotFoundError("it has gone");
    }
    const auto driver = api_.DriverId(device->context());
    if (!driver.ok()) return absl::ErrnoToStatus(driver.error, "no driver id is known");
    return Keepable{device->context()->cmd_fd, driver.value};
  }

  std::shared_ptr<AdoptedDevice> Adopt(DeviceInfo info, Keepable kept,
                                       std::function<void()> closed) override {
    return std::make_shared<VerbsAdoptedDevice>(api_.uverbs(), cm_.loop(), std::move(info), kept,
                                                std::move(closed));
  }

  absl::StatusOr<std::shared_ptr<Domain>> CreateDomain(const std::string& name) override {
    if (const auto device = devices_->Find(name)) return device->CreateDomain();
    return devices_->Missing(name);
  }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, uint32_t port,
                                                   int backlog) override {
    return verbs::Listen(cm_, address, port, backlog);
  }

  void Connect(const std::string& address, uint32_t port, const std::string& source,
               ConnectionSpec spec, EstablishedCallback done) override {
    connector_.Connect(address, port, source, std::move(spec), std::move(done));
  }

 private:
  Api& api_;
  const std::unique_ptr<verbs::Devices> devices_;
  Cm cm_;
  Connector connector_;
};

}  // namespace
}  // namespace verbs

absl::StatusOr<std::unique_ptr<Fabric>> MakeVerbsFabric(verbs::Api& api, NoDevice none,
                                                        uint64_t first_generation) {
  auto devices = verbs::Devices::Open(api, none == NoDevice::kIsAWait, first_generation);
  if (!devices.ok()) return devices.status();
  return std::make_unique<verbs::VerbsFabric>(api, *std::move(devices));
}

}  // namespace mrd::fabric
