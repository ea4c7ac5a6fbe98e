// One opened RDMA device: what it can do, and how much of it this daemon uses.
#ifndef MRD_DAEMON_FABRIC_VERBS_DEVICE_H_
#define MRD_DAEMON_FABRIC_VERBS_DEVICE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/api.h"
#include "daemon/fabric/verbs/drivers.h"
#include "daemon/fabric/verbs/errors.h"

namespace mrd::fabric::verbs {

// Shared by the table of devices, until the device has gone, and by the domains on it: with the
// last of them it ends, and its context with it. Thread safety: any thread.
class Device : public std::enable_shared_from_this<Device> {
 public:
  // Queries `context`. It stays open until the Device ends, which `close` then does. On an error it
  // is closed at once.
  static absl::StatusOr<std::shared_ptr<Device>> Make(Api& api, ibv_context* context,
                                                      bool of_rdma_cm, uint64_t generation,
                                                      absl::AnyInvocable<void(bool gone)> close);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  Api& api() const { return api_; }
  ibv_context* context() const { return context_; }
  const std::string& name() const { return info_.name; }
  const DriverFacts& driver() const { return driver_; }
  bool of_rdma_cm() const { return of_rdma_cm_; }  // Its context is one of rdma_cm's.
  // As at the opening: `active` and `addresses` are not set.
  const DeviceInfo& info() const { return info_; }
  // With the state of its ports and its addresses, read afresh. Asks the kernel.
  DeviceInfo Describe() const;

  absl::StatusOr<std::shared_ptr<Domain>> CreateDomain();

  // It is as good as gone: the next look at the devices gives it up.
  void Fail() { failed_ = true; }
  bool failed() const { return failed_; }
  // It was given up: nothing new is made on it.
  void GiveUp() { gone_ = true; }
  bool gone() const { return gone_.load(std::memory_order_relaxed); }
  absl::Status Gone() const;
  // Whether the kernel has taken the device away from its context, with all that was made there.
  // Drivers give EIO for a command that failed on a device that is there, too: then what was to be
  // ended stands. Asks the kernel, unless it has said so before.
  bool Disassociated();

  // What this daemon holds on it; they count for messages, not for limits.
  std::atomic<uint64_t> domains = 0;
  std::atomic<uint64_t> regions = 0;
  std::atomic<uint64_t> queue_pairs = 0;

  Failed FailedDomain() const {
    return {info_, "protection domain", "max_pd", max_domains_, domains};
  }
  Failed FailedRegion() const { return {info_, "region", "max_mr", info_.max_regions, regions}; }
  Failed FailedQueuePair() const {
    return {info_, "queue pair", "max_qp", max_queue_pairs_, queue_pairs};
  }

 private:
  Device(Api& api, ibv_context* context, absl::AnyInvocable<void(bool gone)> close)
      : api_(api), context_(context), close_(std::move(close)) {}

  absl::Status Query(uint64_t generation);
  // The kernel tells by the errno whether the driver registers dma-bufs at all.
  bool ProbeDmaBuf();

  Api& api_;
  ibv_context* const context_;
  absl::AnyInvocable<void(bool gone)> close_;
  std::atomic<bool> failed_ = false;
  std::atomic<bool> gone_ = false;
  std::atomic<bool> disassociated_ = false;
  DeviceInfo info_;
  DriverFacts driver_;
  bool of_rdma_cm_ = false;
  uint8_t ports_ = 0;
  uint64_t max_domains_ = 0;
  uint64_t max_queue_pairs_ = 0;
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_DEVICE_H_
