#include "daemon/fabric/verbs/domain.h"

#include <errno.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/fabric/checks.h"
#include "daemon/fabric/verbs/access_flags.h"
#include "mrd/v1/status.h"
#include "spdlog/spdlog.h"

namespace mrd::fabric::verbs {
namespace {

class VerbsRegion final : public Region {
 public:
  VerbsRegion(Device& device, ibv_mr* mr) : Region(mr->lkey, mr->rkey), device_(device), mr_(mr) {
    device_.regions.fetch_add(1, std::memory_order_relaxed);
  }
  uint32_t handle() const override { return mr_ ? mr_->handle : 0; }

  // Never leaves memory pinned that nobody knows of.
  ~VerbsRegion() override { VerbsRegion::Deregister().IgnoreError(); }

  absl::Status Deregister() override {
    if (mr_ == nullptr) return absl::OkStatus();
    const int error = device_.api().DeregMr(mr_);
    // A device that is gone reaches no memory: the kernel ended the region with it.
    if (error != 0 && !(MeansRemoved(error) && device_.Disassociated())) {
      return MakeError(
          v1::DEVICE_ERROR,
          absl::StrCat("device ", device_.name(), " did not end a region: ", ErrnoName(error)),
          {.errno_value = error, .advice = "Try again; see the kernel's log (dmesg)"});
    }
    mr_ = nullptr;
    device_.regions.fetch_sub(1, std::memory_order_relaxed);
    return absl::OkStatus();
  }

 private:
  Device& device_;
  ibv_mr* mr_;  // Null once deregistered.
};

static_assert(sizeof(VerbsRegion) <= 40, "there are millions of them");

}  // namespace

VerbsDomain::VerbsDomain(std::shared_ptr<Device> device, ibv_pd* pd)
    : device_(std::move(device)), pd_(pd) {
  device_->domains.fetch_add(1, std::memory_order_relaxed);
}

VerbsDomain::~VerbsDomain() {
  if (const int error = device_->api().DeallocPd(pd_); error != 0 && !MeansRemoved(error)) {
    spdlog::error("device {}: ibv_dealloc_pd: {}", device_->name(), ErrnoName(error));
  }
  device_->domains.fetch_sub(1, std::memory_order_relaxed);
}

absl::StatusOr<std::unique_ptr<Region>> VerbsDomain::Register(const RegionSpec& spec) {
  // The kernel would let it pass until the last descriptor of the device is closed, and its removal
  // waits for that.
  if (device_->gone()) return device_->Gone();
  const DeviceInfo& info = device_->info();
  if (absl::Status status = CheckRegion(info, spec); !status.ok()) return status;
  const int access = ToVerbs(spec.access);
  Api& api = device_->api();
  Result<ibv_mr*> mr;
  if (spec.dma_buf_fd < 0) {
    mr = api.RegMr(pd_, spec.va, spec.length, spec.iova, access);
  } else if (info.dma_buf) {
    mr = api.RegDmaBufMr(pd_, spec.dma_buf_offset, spec.length, spec.iova, spec.dma_buf_fd, access);
  } else {
    return MakeError(v1::UNSUPPORTED, absl::StrCat("device ", info.name, " takes no dma-buf"),
                     {.errno_value = EOPNOTSUPP, .advice = "Use a device that does, or a memfd"});
  }
  if (!mr.ok()) {
    return RegisterError(api, device_->driver(), device_->FailedRegion(), spec, mr.error);
  }
  return std::make_unique<VerbsRegion>(*device_, mr.value);
}

}  // namespace mrd::fabric::verbs
