#include "daemon/fabric/verbs/devices.h"

#include <errno.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mrd/v1/status.h"
#include "spdlog/spdlog.h"

namespace mrd::fabric::verbs {

absl::StatusOr<std::unique_ptr<Devices>> Devices::Open(Api& api, bool one_may_come,
                                                       uint64_t first_generation) {
  std::unique_ptr<Devices> devices(new Devices(api));
  devices->generation_ = first_generation;
  if (!devices->Refresh().added.empty()) return devices;
  const absl::Status none = devices->NoneOpened();
  if (!one_may_come) return none;
  spdlog::warn("{}. Until one comes, clients attach and register nothing",
               std::string(none.message()));
  return devices;
}

absl::Status Devices::NoneOpened() const {
  const auto detail = DetailOf(first_failure_);
  if (!failures_.empty()) {
    return MakeError(
        v1::DEVICE_ERROR,
        absl::StrCat("no RDMA device could be opened: ", absl::StrJoin(failures_, "; ")),
        {.errno_value = detail ? detail->errno_value() : 0,
         .advice = "The daemon needs read and write access to /dev/infiniband; or start it with "
                   "--fabric=soft, which needs no device"});
  }
  return MakeError(v1::DEVICE_UNKNOWN, "this host has no RDMA device",
                   {.advice = "Load the driver of one (soft-RoCE: modprobe rdma_rxe, then 'rdma "
                              "link add'), and rdma_ucm; or start with --fabric=soft, which "
                              "needs no device"});
}

std::vector<Devices::DevicePtr> Devices::all() const {
  MutexLock lock(mutex_);
  return devices_;
}

Devices::DevicePtr Devices::Find(const std::string& name) const {
  MutexLock lock(mutex_);
  for (const DevicePtr& device : devices_) {
    if (device->name() == name) return device;
  }
  return nullptr;
}

Devices::DevicePtr Devices::Find(const ibv_context* context) const {
  MutexLock lock(mutex_);
  for (const DevicePtr& device : devices_) {
    if (device->context() == context) return device;
  }
  return nullptr;
}

absl::Status Devices::Missing(const std::string& name) const {
  {
    MutexLock lock(mutex_);
    if (gone_.count(name) != 0) {
      DeviceInfo info;
      info.name = name;
      return RemovedError(info, 0);
    }
  }
  return MakeError(v1::DEVICE_UNKNOWN, absl::StrCat("no device '", name, "' here"),
                   {.advice = "List the devices"});
}

Devices::Changes Devices::Refresh() {
  Changes changes;
  lister_.RunSync([&] { Look(&changes); });
  return changes;
}

void Devices::Look(Changes* changes) {
  failures_.clear();
  first_failure_ = absl::OkStatus();
  // First: a device that comes in between is then in rdma_cm's list alone, and not taken for one
  // that rdma_cm does not know.
  const auto list = api_.GetDeviceList();
  if (!list.ok() || !Trustworthy(list.value)) {
    spdlog::warn("the list of devices cannot be read ({}): devices that came or went are not seen",
                 list.ok() ? "no netlink" : ErrnoName(list.error));
    if (list.ok()) api_.FreeDeviceList(list.value);
    return;
  }
  std::set<const ibv_device*> present;
  for (ibv_device** it = list.value; *it != nullptr; ++it) present.insert(*it);
  GiveUpMissing(present, changes);
  OpenOfRdmaCm(!present.empty(), changes);
  OpenOthers(list.value, changes);
  api_.FreeDeviceList(list.value);
  if (!changes->added.empty()) ++generation_;
}

bool Devices::Trustworthy(ibv_device** list) const {
  const auto known = all();
  const bool by_index = std::any_of(known.begin(), known.end(), [this](const DevicePtr& device) {
    return api_.DeviceIndex(device->context()->device) >= 0;
  });
  for (ibv_device** it = list; *it != nullptr; ++it) {
    if (by_index && api_.DeviceIndex(*it) < 0) return false;
  }
  return true;
}

void Devices::GiveUpMissing(const std::set<const ibv_device*>& present, Changes* changes) {
  MutexLock lock(mutex_);
  for (auto it = devices_.begin(); it != devices_.end();) {
    const DevicePtr device = *it;
    const bool is_there = present.count(device->context()->device) != 0;
    if (is_there && !device->failed()) {
      ++it;
      continue;
    }
    it = devices_.erase(it);
    GiveUp(device, changes);
    if (is_there) changes->failed.push_back(device->name());
    if (is_there && !device->of_rdma_cm()) {
      given_up_.emplace(device->name(), api_.DeviceIndex(device->context()->device));
    }
  }
}

void Devices::GiveUp(const DevicePtr& device, Changes* changes) {
  gone_.insert(device->name());
  device->GiveUp();
  // One that has failed and is there still is not opened again before it has gone.
  if (device->of_rdma_cm()) contexts_->GiveUp(device->context());
  changes->removed.push_back(device);
}

void Devices::GiveUpForsaken(const ibv_context* fresh, Changes* changes) {
  MutexLock lock(mutex_);
  for (auto it = devices_.begin(); it != devices_.end(); ++it) {
    const DevicePtr device = *it;
    if (!device->of_rdma_cm() || device->context()->device != fresh->device) continue;
    spdlog::warn("device {}: librdmacm has opened it anew: it counts as removed and added",
                 device->name());
    devices_.erase(it);
    GiveUp(device, changes);
    return;
  }
}

void Devices::OpenOfRdmaCm(bool expected, Changes* changes) {
  const auto list = api_.GetDevices();
  if (!list.ok()) {
    // ENODEV is its word for "no device at all", and for a list that it could not read.
    if (list.error == ENODEV && !expected) {
      contexts_->Take(nullptr);
    } else {
      spdlog::warn(
          "rdma_get_devices: {}: no endpoints on new devices; is the module rdma_ucm "
          "loaded?",
          ErrnoName(list.error));
    }
    return;
  }
  contexts_->Take(list.value);
  of_rdma_cm_.clear();
  for (ibv_context** it = list.value; *it != nullptr; ++it) {
    ibv_context* const context = *it;
    of_rdma_cm_.insert(context->device);
    if (Find(context) != nullptr || contexts_->IsGivenUp(context)) continue;
    GiveUpForsaken(context, changes);
    Add(
        context, true,
        [contexts = contexts_, context](bool gone) {
          if (gone) contexts->LetGo(context);
        },
        changes);
  }
}

// Those that rdma_cm left out: they register, and have no endpoints.
void Devices::OpenOthers(ibv_device** list, Changes* changes) {
  std::set<const ibv_device*> open = of_rdma_cm_;
  for (const DevicePtr& device : all()) open.insert(device->context()->device);
  std::set<std::pair<std::string, int>> listed;
  for (ibv_device** it = list; *it != nullptr; ++it) {
    const std::string name = (*it)->name;
    const int index = api_.DeviceIndex(*it);
    listed.emplace(name, index);
    if (open.count(*it) != 0 || given_up_.count({name, index}) != 0) continue;
    const auto context = api_.OpenDevice(*it);
    if (context.ok()) {
      Add(
          context.value, false,
          [&api = api_, opened = context.value](bool) { api.CloseDevice(opened); }, changes);
    } else {
      DeviceInfo info;
      info.name = name;
      Failed(name, index, DeviceError({info, "context", "", 0, 0}, context.error));
    }
  }
  for (auto* known : {&told_, &given_up_}) {
    for (auto each = known->begin(); each != known->end();) {
      each = listed.count(*each) != 0 ? std::next(each) : known->erase(each);
    }
  }
}

void Devices::Add(ibv_context* context, bool endpoints, absl::AnyInvocable<void(bool gone)> close,
                  Changes* changes) {
  // The context ends with a Device that could not be made.
  const std::string name = context->device->name;
  const int index = api_.DeviceIndex(context->device);
  auto device = Device::Make(api_, context, endpoints, generation_, std::move(close));
  if (!device.ok()) return Failed(name, index, device.status());
  changes->added.push_back(*device);
  MutexLock lock(mutex_);
  gone_.erase(name);
  const auto place = std::upper_bound(
      devices_.begin(), devices_.end(), *device,
      [](const DevicePtr& a, const DevicePtr& b) { return a->name() < b->name(); });
  devices_.insert(place, *std::move(device));
}

void Devices::Failed(const std::string& name, int index, absl::Status status) {
  const std::string text(status.message());
  if (told_.emplace(name, index).second) spdlog::warn("device {} is left out: {}", name, text);
  failures_.push_back(text);
  if (first_failure_.ok()) first_failure_ = std::move(status);
}

}  // namespace mrd::fabric::verbs
