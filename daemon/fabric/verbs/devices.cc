#include "daemon/fabric/verbs/devices.h"

#include <errno.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mrd/v1/status.h"
#include "spdlog/spdlog.h"

namespace mrd::fabric::verbs {
namespace {

// Of this process' openings; devices are opened once in its life.
constexpr uint64_t kFirstGeneration = 1;

}  // namespace

absl::StatusOr<std::unique_ptr<Devices>> Devices::Open(Api& api) {
  std::unique_ptr<Devices> devices(new Devices(api));
  devices->OpenOfRdmaCm();
  devices->OpenOthers();
  if (devices->devices_.empty()) {
    const auto detail = DetailOf(devices->first_failure_);
    if (!devices->failed_.empty()) {
      return MakeError(
          v1::DEVICE_ERROR,
          absl::StrCat("no RDMA device could be opened: ", absl::StrJoin(devices->failed_, "; ")),
          {.errno_value = detail ? detail->errno_value() : 0,
           .advice = "The daemon needs read and write access to /dev/infiniband; or start it with "
                     "--fabric=soft, which needs no device"});
    }
    return MakeError(v1::DEVICE_UNKNOWN, "this host has no RDMA device",
                     {.advice = "Load the driver of one (soft-RoCE: modprobe rdma_rxe, then 'rdma "
                                "link add'), and rdma_ucm; or start with --fabric=soft, which "
                                "needs no device"});
  }
  std::sort(devices->devices_.begin(), devices->devices_.end(),
            [](const auto& a, const auto& b) { return a->name() < b->name(); });
  return devices;
}

Devices::~Devices() {
  devices_.clear();
  if (contexts_ != nullptr) api_.FreeDevices(contexts_);
}

void Devices::OpenOfRdmaCm() {
  const auto list = api_.GetDevices();
  if (!list.ok()) {
    // ENODEV is its word for "no device at all"; that is no error of rdma_cm's.
    if (list.error != ENODEV) {
      spdlog::warn("rdma_get_devices: {}: no endpoints; is the module rdma_ucm loaded?",
                   ErrnoName(list.error));
    }
    return;
  }
  contexts_ = list.value;
  for (ibv_context** it = contexts_; *it != nullptr; ++it) Add(*it, true, false);
}

// Those that rdma_cm left out: they register, and have no endpoints.
void Devices::OpenOthers() {
  const auto list = api_.GetDeviceList();
  if (!list.ok()) return;
  for (ibv_device** it = list.value; *it != nullptr; ++it) {
    const std::string name = (*it)->name;
    if (Find(name) != nullptr) continue;
    const auto context = api_.OpenDevice(*it);
    if (context.ok()) {
      Add(context.value, false, true);
    } else {
      DeviceInfo info;
      info.name = name;
      Failed(name, DeviceError({info, "context", "", 0, 0}, context.error));
    }
  }
  api_.FreeDeviceList(list.value);
}

void Devices::Add(ibv_context* context, bool endpoints, bool owned) {
  const std::string name =
      context->device->name;  // The context ends with a Device that could not be made.
  auto device = Device::Make(api_, context, endpoints, owned, kFirstGeneration);
  if (device.ok()) {
    devices_.push_back(*std::move(device));
  } else {
    Failed(name, device.status());
  }
}

void Devices::Failed(const std::string& name, absl::Status status) {
  const std::string text(status.message());
  spdlog::warn("device {} is left out: {}", name, text);
  failed_.push_back(text);
  if (first_failure_.ok()) first_failure_ = std::move(status);
}

Device* Devices::Find(const std::string& name) const {
  for (const auto& device : devices_) {
    if (device->name() == name) return device.get();
  }
  return nullptr;
}

Device* Devices::Find(const ibv_context* context) const {
  for (const auto& device : devices_) {
    if (device->context() == context) return device.get();
  }
  return nullptr;
}

}  // namespace mrd::fabric::verbs
