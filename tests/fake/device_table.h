// The devices of the fake host, those that were removed included: whoever has a context of one can
// use it still.
#ifndef MRD_TESTS_FAKE_DEVICE_TABLE_H_
#define MRD_TESTS_FAKE_DEVICE_TABLE_H_

#include <memory>
#include <string>
#include <vector>

#include "daemon/mutex.h"
#include "tests/fake/fake_device.h"

namespace mrd::fake {

// Thread safety: any thread. Devices live as long as the table.
class DeviceTable {
 public:
  // `kernel` may be null; see FakeDevice.
  DeviceTable(Live& live, FakeKernel* kernel) : live_(live), kernel_(kernel) {}

  FakeDevice& Add(const DeviceSpec& spec) MRD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    all_.push_back(
        std::make_unique<FakeDevice>(spec, static_cast<int>(all_.size()), live_, kernel_));
    return *all_.back();
  }

  std::vector<FakeDevice*> All() const MRD_EXCLUDES(mutex_) {
    std::vector<FakeDevice*> devices;
    MutexLock lock(mutex_);
    for (const auto& device : all_) devices.push_back(device.get());
    return devices;
  }

  std::vector<FakeDevice*> Present() const {
    std::vector<FakeDevice*> devices;
    for (FakeDevice* device : All()) {
      if (!device->removed()) devices.push_back(device);
    }
    return devices;
  }

  // The last one of that name; null: there never was one.
  FakeDevice* Find(const std::string& name) const {
    FakeDevice* found = nullptr;
    for (FakeDevice* device : All()) {
      if (device->spec().name == name) found = device;
    }
    return found;
  }

 private:
  Live& live_;
  FakeKernel* const kernel_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<FakeDevice>> all_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::fake

#endif  // MRD_TESTS_FAKE_DEVICE_TABLE_H_
