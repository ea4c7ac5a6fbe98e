#include "daemon/fabric/verbs/verbs_fabric.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/fabric/verbs/cm.h"
#include "daemon/fabric/verbs/connector.h"
#include "daemon/fabric/verbs/devices.h"
#include "daemon/fabric/verbs/listener.h"
#include "mrd/v1/status.h"

namespace mrd::fabric {
namespace verbs {
namespace {

class VerbsFabric final : public Fabric {
 public:
  VerbsFabric(Api& api, std::unique_ptr<verbs::Devices> devices)
      : devices_(std::move(devices)), cm_(api, *devices_), connector_(cm_) {}

  std::string name() const override { return "verbs"; }

  std::vector<DeviceInfo> Devices() override {
    std::vector<DeviceInfo> infos;
    for (const auto& device : devices_->all()) infos.push_back(device->Describe());
    return infos;
  }

  absl::StatusOr<std::shared_ptr<Domain>> CreateDomain(const std::string& name) override {
    if (Device* const device = devices_->Find(name)) return device->CreateDomain();
    return MakeError(v1::DEVICE_UNKNOWN, absl::StrCat("no device '", name, "' here"),
                     {.advice = "List the devices"});
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
  const std::unique_ptr<verbs::Devices> devices_;
  Cm cm_;
  Connector connector_;
};

}  // namespace
}  // namespace verbs

absl::StatusOr<std::unique_ptr<Fabric>> MakeVerbsFabric(verbs::Api& api) {
  auto devices = verbs::Devices::Open(api);
  if (!devices.ok()) return devices.status();
  return std::make_unique<verbs::VerbsFabric>(api, *std::move(devices));
}

}  // namespace mrd::fabric
