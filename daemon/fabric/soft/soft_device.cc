#include "daemon/fabric/soft/soft_device.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/fabric/checks.h"
#include "mrd/v1/status.h"

namespace mrd::fabric {
namespace {

constexpr uint64_t kMaxRegionBytes = uint64_t{1} << 40;

DeviceInfo Describe() {
  DeviceInfo info;
  info.name = kSoftDevice;
  info.transport = v1::Device::SOFT;
  info.active = true;
  info.addresses = {"127.0.0.1", "::1"};
  info.endpoints = true;
  info.max_region_bytes = kMaxRegionBytes;
  info.max_regions = KeyTable::kCapacity;
  info.access = Bit(v1::LOCAL_WRITE) | kRemoteAccess | Bit(v1::RELAXED_ORDERING);
  info.generation = kSoftGeneration;
  info.opened = std::chrono::system_clock::now();
  return info;
}

class SoftRegion final : public Region {
 public:
  SoftRegion(SoftDevice* device, KeyTable::Keys keys)
      : Region(keys.lkey, keys.rkey), device_(device) {}
  ~SoftRegion() override { SoftRegion::Deregister().IgnoreError(); }

  absl::Status Deregister() override {
    if (SoftDevice* device = std::exchange(device_, nullptr)) device->keys().GiveBack(lkey());
    return absl::OkStatus();
  }

 private:
  SoftDevice* device_;  // Null once deregistered.
};

class SoftDomain final : public Domain {
 public:
  explicit SoftDomain(SoftDevice& device) : device_(device) {}

  absl::StatusOr<std::unique_ptr<Region>> Register(const RegionSpec& spec) override {
    if (spec.dma_buf_fd >= 0) {
      return MakeError(v1::UNSUPPORTED, "device soft0 takes no dma-buf",
                       {.advice = "Use a memfd, or a device that takes dma-bufs"});
    }
    if (absl::Status status = CheckRegion(device_.info(), spec); !status.ok()) return status;
    const auto keys = device_.keys().Take();
    if (!keys) {
      return MakeError(
          v1::DEVICE_LIMIT,
          absl::StrCat("device soft0 has its ", KeyTable::kCapacity, " regions, and no more"),
          {.limit_name = "max_mr of device soft0",
           .limit = KeyTable::kCapacity,
           .used = device_.keys().used(),
           .advice = "Deregister what is not needed, or register fewer, longer ranges"});
    }
    return std::make_unique<SoftRegion>(&device_, *keys);
  }

  std::string device() const override { return device_.info().name; }
  uint64_t generation() const override { return device_.info().generation; }

 private:
  SoftDevice& device_;
};

}  // namespace

SoftDevice::SoftDevice() : info_(Describe()) {}

std::shared_ptr<Domain> SoftDevice::CreateDomain() { return std::make_shared<SoftDomain>(*this); }

}  // namespace mrd::fabric
