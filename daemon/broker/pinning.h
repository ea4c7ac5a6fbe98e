// The pinning of one Register call: every range on every device, the devices side by side.
#ifndef MRD_DAEMON_BROKER_PINNING_H_
#define MRD_DAEMON_BROKER_PINNING_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "daemon/broker/event.h"
#include "daemon/broker/lease.h"
#include "daemon/broker/spec.h"
#include "daemon/memory/buffer.h"
#include "daemon/mutex.h"

namespace mrd::broker {

class Pinning {
 public:
  // Calls with more bytes than this, over all devices, report their progress, at most this often.
  static constexpr uint64_t kReportedFrom = uint64_t{1} << 30;
  static constexpr std::chrono::milliseconds kReportEvery{200};

  // What to pin, and for whom. All of it stays as it is while Run or Help runs.
  struct Job {
    const std::vector<RangeSpec>& ranges;
    const std::vector<std::shared_ptr<memory::Buffer>>& buffers;  // One a range.
    const absl::InlinedVector<SessionDomain, 1>& domains;         // One a device.
    // One a range: its regions and keys are filled in, one a device.
    std::vector<std::unique_ptr<Lease>>& leases;
    fabric::AccessMask access;
    // Whether a thread may wait for an address that another buffer has. One that takes calls must
    // not: BUSY.
    bool may_wait;
    // Asked now and then, by several threads: an error ends it.
    std::function<absl::Status()> go_on;
    std::function<void(const Progress&)> report;
  };

  // All of it, by this thread, and by those that `Help` meanwhile (`ask_for_help` is called once
  // for each other device, where the work is worth it). On an error some regions may have been
  // made.
  absl::Status Run(Job job, const std::function<void()>& ask_for_help);

  // Pins on devices that no thread has begun with. Does nothing where Run has ended.
  void Help();

  // After an error: buffers that were mapped for this call are mapped no more. What was pinned is
  // the caller's to end.
  void Unmap();

 private:
  // What one thread has at hand of the range before: mostly the same buffer's.
  struct Last {
    const memory::Buffer* buffer = nullptr;
    std::shared_ptr<memory::Mapping> mapping;
  };

  void PinOnDevices();
  absl::Status PinOn(size_t device);
  absl::Status Pin(size_t range, size_t device, Last& last);
  absl::StatusOr<std::unique_ptr<fabric::Region>> PinAnywhere(const RangeSpec& range,
                                                              memory::Buffer& buffer,
                                                              fabric::Domain& domain, Last& last,
                                                              HeldRegion& held);
  absl::StatusOr<std::unique_ptr<fabric::Region>> PinInPlace(const RangeSpec& range,
                                                             memory::Buffer& buffer,
                                                             fabric::Domain& domain);
  absl::Status Populate(memory::Mapping& mapping, const RangeSpec& range);
  fabric::RegionSpec SpecOf(const RangeSpec& range) const;
  void Mapped(memory::Buffer& buffer);
  void Count(std::atomic<uint64_t>& counter, uint64_t more);

  std::optional<const Job> job_;
  std::atomic<size_t> next_device_{0};
  std::atomic<bool> failed_{false};
  Progress total_;
  std::atomic<uint64_t> bytes_mapped_{0};
  std::atomic<uint64_t> bytes_pinned_{0};
  std::atomic<uint64_t> ranges_pinned_{0};
  std::atomic<int64_t> next_report_{0};  // On the steady clock.

  Mutex mutex_;
  CondVar changed_;
  size_t running_ MRD_GUARDED_BY(mutex_) = 0;  // Threads that pin.
  bool over_ MRD_GUARDED_BY(mutex_) = false;
  absl::Status first_error_ MRD_GUARDED_BY(mutex_);
  std::vector<memory::Buffer*> mapped_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_PINNING_H_
