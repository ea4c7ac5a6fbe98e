#include "daemon/fabric/soft/soft_fabric.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "daemon/fabric/soft/loopback.h"
#include "daemon/fabric/soft/soft_device.h"
#include "mrd/v1/status.h"

namespace mrd::fabric {
namespace {

class SoftFabric final : public Fabric {
 public:
  std::string name() const override { return "soft"; }
  std::vector<DeviceInfo> Devices() override { return {device_.info()}; }

  void Watch(std::function<void()>) override {}
  DeviceChanges Refresh() override { return {}; }

  absl::StatusOr<std::shared_ptr<Domain>> CreateDomain(const std::string& device) override {
    if (device != kSoftDevice) {
      return MakeError(v1::DEVICE_UNKNOWN, absl::StrCat("no device '", device, "' here"),
                       {.advice = "The soft fabric has one device: soft0"});
    }
    return device_.CreateDomain();
  }

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, uint32_t port,
                                                   int backlog) override {
    return loopback_.Listen(address, port, backlog);
  }

  void Connect(const std::string& address, uint32_t port, const std::string& source,
               ConnectionSpec spec, EstablishedCallback done) override {
    loopback_.Connect(address, port, source, std::move(spec), std::move(done));
  }

 private:
  SoftDevice device_;
  Loopback loopback_;
};

}  // namespace

std::unique_ptr<Fabric> MakeSoftFabric() { return std::make_unique<SoftFabric>(); }

}  // namespace mrd::fabric
