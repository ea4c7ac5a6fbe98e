#include "daemon/fabric/verbs/adopted_device.h"

#include <errno.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/fabric/checks.h"
#include "daemon/fabric/verbs/access_flags.h"
#include "daemon/fabric/verbs/errors.h"
#include "mrd/v1/status.h"
#include "spdlog/spdlog.h"

namespace mrd::fabric::verbs {
namespace {

using DevicePtr = std::shared_ptr<VerbsAdoptedDevice>;

class AdoptedRegion final : public Region {
 public:
  AdoptedRegion(DevicePtr device, uint32_t handle, uint32_t lkey, uint32_t rkey)
      : Region(lkey, rkey), device_(std::move(device)), handle_(handle) {}
  // Never leaves memory pinned that nobody knows of.
  ~AdoptedRegion() override { AdoptedRegion::Deregister().IgnoreError(); }

  uint32_t handle() const override { return handle_; }

  absl::Status Deregister() override {
    if (!device_) return absl::OkStatus();
    auto ended = device_->End(AdoptedDevice::Object::kRegion, handle_);
    if (ended.ok()) device_ = nullptr;
    return ended;
  }

 private:
  DevicePtr device_;  // Null once deregistered.
  const uint32_t handle_;
};

class AdoptedDomain final : public Domain {
 public:
  AdoptedDomain(DevicePtr device, uint32_t handle) : device_(std::move(device)), handle_(handle) {}
  ~AdoptedDomain() override {
    if (auto ended = device_->End(AdoptedDevice::Object::kDomain, handle_); !ended.ok()) {
      spdlog::error("{}", std::string(ended.message()));
    }
  }

  absl::StatusOr<std::unique_ptr<Region>> Register(const RegionSpec& spec) override {
    return device_->Register(handle_, spec);
  }
  std::string device() const override { return device_->info().name; }
  uint64_t generation() const override { return device_->info().generation; }
  uint32_t handle() const override { return handle_; }

 private:
  const DevicePtr device_;
  const uint32_t handle_;
};

// Its queue pair goes on by itself. Its rdma_cm id cannot be used any more: the kernel refuses to
// let this process write to its descriptor, and an event is read by writing. But the descriptor
// becomes readable when there is one. That is mostly the peer's leaving; an address of the host or
// the peer's hardware that has changed (ADDR_CHANGE, UNREACHABLE) look the same, and count as it:
// the queue pair's state does not tell them apart, since it stays what it was when a peer leaves.
class AdoptedConnection final : public Connection {
 public:
  AdoptedConnection(DevicePtr device, EventLoop& loop, const ConnectionHandles& handles,
                    std::shared_ptr<Domain> domain, ConnectionInfo info,
                    std::function<void(bool error)> left)
      : device_(std::move(device)),
        loop_(loop),
        domain_(std::move(domain)),
        handles_(handles),
        info_(std::move(info)),
        fd_(handles.fd),
        left_(std::move(left)) {
    loop_.RunSync([this] {
      watch_ = loop_.Watch(fd_.get(), [this] { Leave(/*error=*/false); });
      // Nobody would ever learn that the peer has left.
      if (watch_ == 0) Leave(/*error=*/true);
    });
  }
  ~AdoptedConnection() override {
    loop_.RunSync([this] { loop_.Unwatch(watch_); });
    // The queue pair before its id: the peer reaches nothing from then on.
    device_->EndConnection(handles_);
  }

  const ConnectionInfo& info() const override { return info_; }
  ConnectionHandles handles() const override { return handles_; }

 private:
  void Leave(bool error) {
    loop_.Unwatch(watch_);
    watch_ = 0;
    // The peer's rdma_disconnect waits for an answer (InfiniBand's DREP). The kernel gives it when
    // it ends the id, which it does with the last descriptor.
    fd_.reset();
    if (const auto left = std::exchange(left_, nullptr)) left(error);
  }

  const DevicePtr device_;
  EventLoop& loop_;
  const std::shared_ptr<Domain> domain_;
  const ConnectionHandles handles_;
  const ConnectionInfo info_;
  // The loop thread's own.
  UniqueFd fd_;
  std::function<void(bool error)> left_;
  EventLoop::WatchId watch_ = 0;
};

UverbsObject ToUverbs(AdoptedDevice::Object object) {
  switch (object) {
    case AdoptedDevice::Object::kDomain:
      return UverbsObject::kPd;
    case AdoptedDevice::Object::kRegion:
      return UverbsObject::kMr;
    case AdoptedDevice::Object::kQueuePair:
      return UverbsObject::kQp;
    case AdoptedDevice::Object::kCompletionQueue:
      return UverbsObject::kCq;
  }
  return UverbsObject::kPd;
}

const char* NameOf(AdoptedDevice::Object object) {
  switch (object) {
    case AdoptedDevice::Object::kDomain:
      return "a protection domain";
    case AdoptedDevice::Object::kRegion:
      return "a region";
    case AdoptedDevice::Object::kQueuePair:
      return "a queue pair";
    case AdoptedDevice::Object::kCompletionQueue:
      return "a completion queue";
  }
  return "";
}

}  // namespace

VerbsAdoptedDevice::VerbsAdoptedDevice(Uverbs& uverbs, EventLoop& loop, DeviceInfo info,
                                       Keepable kept, std::function<void()> closed)
    : uverbs_(uverbs),
      loop_(loop),
      info_(std::move(info)),
      fd_(kept.fd),
      context_{kept.fd, kept.driver_id},
      closed_(std::move(closed)) {}

VerbsAdoptedDevice::~VerbsAdoptedDevice() {
  if (closed_) closed_();
}

absl::Status VerbsAdoptedDevice::Failed(const std::string& what, int error) const {
  if (MeansRemoved(error)) return RemovedError(info_, error);
  return MakeError(v1::DEVICE_ERROR,
                   absl::StrCat("device ", info_.name, ", generation ", info_.generation, ": ",
                                what, ": ", ErrnoName(error)),
                   {.errno_value = error, .advice = "Try again; see the kernel's log (dmesg)"});
}

absl::StatusOr<AdoptedDevice::Handles> VerbsAdoptedDevice::List(Object object) {
  auto list = uverbs_.Handles(context_, ToUverbs(object));
  if (!list.ok()) return Failed("the kernel does not list what is there", list.error);
  return Handles{std::move(list.value.handles), list.value.all};
}

absl::StatusOr<AdoptedDevice::RegionFacts> VerbsAdoptedDevice::Query(uint32_t region) {
  const auto facts = uverbs_.QueryMr(context_, region);
  if (facts.error == ENOENT) return absl::NotFoundError("no such region");
  if (!facts.ok()) return Failed("a region cannot be queried", facts.error);
  return RegionFacts{facts.value.lkey, facts.value.rkey, facts.value.length, facts.value.iova};
}

absl::Status VerbsAdoptedDevice::End(Object object, uint32_t handle) {
  const int error = uverbs_.Destroy(context_, ToUverbs(object), handle);
  // A device that is gone has nothing any more.
  if (error == 0 || error == ENOENT || MeansRemoved(error)) return absl::OkStatus();
  return Failed(absl::StrCat(NameOf(object), " of before the restart does not end"), error);
}

std::shared_ptr<Domain> VerbsAdoptedDevice::AdoptDomain(uint32_t handle) {
  return std::make_shared<AdoptedDomain>(shared_from_this(), handle);
}

std::unique_ptr<Region> VerbsAdoptedDevice::AdoptRegion(uint32_t handle, uint32_t lkey,
                                                        uint32_t rkey) {
  return std::make_unique<AdoptedRegion>(shared_from_this(), handle, lkey, rkey);
}

std::unique_ptr<Connection> VerbsAdoptedDevice::AdoptConnection(
    const ConnectionHandles& handles, std::shared_ptr<Domain> domain, ConnectionInfo info,
    std::function<void(bool error)> left) {
  return std::make_unique<AdoptedConnection>(shared_from_this(), loop_, handles, std::move(domain),
                                             std::move(info), std::move(left));
}

absl::StatusOr<std::unique_ptr<Region>> VerbsAdoptedDevice::Register(uint32_t domain,
                                                                     const RegionSpec& spec) {
  if (absl::Status status = CheckRegion(info_, spec); !status.ok()) return status;
  const auto refused = [this](int error, const std::string& why) {
    return MakeError(
        v1::UNSUPPORTED,
        absl::StrCat("device ", info_.name, ": ", why,
                     ": the session's connections of before the daemon's restart cannot reach it"),
        {.errno_value = error,
         .advice =
             "Make those connections anew and end the old ones, or register with newest_only"});
  };
  if (spec.dma_buf_fd >= 0) {
    return refused(EOPNOTSUPP, "a dma-buf is registered in a protection domain of this run only");
  }
  const auto made = uverbs_.RegMr(context_, {.pd = domain,
                                             .va = reinterpret_cast<uint64_t>(spec.va),
                                             .length = spec.length,
                                             .iova = spec.iova,
                                             .access = ToVerbs(spec.access)});
  if (made.error == EINVAL || made.error == EOPNOTSUPP || made.error == ENOSPC) {
    return refused(made.error, "its driver registers nothing in a protection domain of before");
  }
  if (!made.ok()) return Failed("a region was not registered", made.error);
  return AdoptRegion(made.value.handle, made.value.lkey, made.value.rkey);
}

void VerbsAdoptedDevice::EndConnection(const ConnectionHandles& handles) {
  for (const auto& [object, handle] :
       {std::pair{Object::kQueuePair, handles.queue_pair},
        std::pair{Object::kCompletionQueue, handles.completion_queue}}) {
    if (auto ended = End(object, handle); !ended.ok()) {
      spdlog::error("{}", std::string(ended.message()));
    }
  }
}

}  // namespace mrd::fabric::verbs
