#include "daemon/broker/device_catalog.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace mrd::broker {
namespace {

constexpr std::chrono::seconds kFresh{1};

}  // namespace

bool DeviceCatalog::FreshLocked() const {
  return std::chrono::steady_clock::now() - read_ < kFresh;
}

std::vector<DeviceRef> DeviceCatalog::Known() {
  MutexLock lock(mutex_);
  return devices_;
}

std::vector<DeviceRef> DeviceCatalog::Read(bool anew) {
  {
    MutexLock lock(mutex_);
    while (reading_) changed_.Wait(mutex_);
    if (!anew && FreshLocked()) return devices_;
    reading_ = true;
  }
  std::vector<DeviceRef> fresh;
  for (fabric::DeviceInfo& device : fabric_.Devices()) {
    fresh.push_back(std::make_shared<const fabric::DeviceInfo>(std::move(device)));
  }
  MutexLock lock(mutex_);
  devices_ = fresh;
  read_ = std::chrono::steady_clock::now();
  reading_ = false;
  changed_.NotifyAll();
  return fresh;
}

void DeviceCatalog::Drop(const fabric::DeviceInfo& device) {
  MutexLock lock(mutex_);
  devices_.erase(std::remove_if(devices_.begin(), devices_.end(),
                                [&device](const DeviceRef& each) {
                                  return each->name == device.name &&
                                         each->generation == device.generation;
                                }),
                 devices_.end());
}

void DeviceCatalog::List(DevicesDone done) {
  std::vector<DeviceRef> known;
  bool fresh;
  {
    MutexLock lock(mutex_);
    fresh = FreshLocked();
    if (fresh) {
      known = devices_;
    } else {
      wanted_.push_back(std::move(done));
      if (wanted_.size() > 1) return;
    }
  }
  if (fresh) return done(known);
  registrar_.SubmitCleanup(kDaemonsOwn, [this] {
    const auto devices = Read();
    std::vector<DevicesDone> wanted;
    {
      MutexLock lock(mutex_);
      wanted.swap(wanted_);
    }
    for (DevicesDone& each : wanted) each(devices);
  });
}

void DeviceCatalog::Renew() {
  {
    MutexLock lock(mutex_);
    if (FreshLocked() || !wanted_.empty()) return;
  }
  List([](const std::vector<DeviceRef>&) {});
}

}  // namespace mrd::broker
