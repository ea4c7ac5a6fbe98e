// What the broker says has happened, counted.
#ifndef MRD_DAEMON_HOST_METRICS_COUNTERS_H_
#define MRD_DAEMON_HOST_METRICS_COUNTERS_H_

#include <array>
#include <chrono>
#include <cstdint>

#include "daemon/broker/observer.h"
#include "daemon/stats.h"

namespace mrd::host {

// Thread-safe, lock-free. Members are there to be read.
class Counters : public broker::Observer {
 public:
  void SessionAttached() override { sessions_attached.Add(); }
  void SessionEnded(broker::SessionEnd how, std::chrono::nanoseconds took) override {
    sessions_ended[static_cast<size_t>(how)].Add();
    cleanups.Add(took);
  }
  void LeasesEnded(broker::LeaseEnd cause, uint64_t count) override {
    leases_ended[static_cast<size_t>(cause)].Add(count);
  }
  void DeviceChanged(broker::DeviceEvent event) override {
    device_events[static_cast<size_t>(event)].Add();
  }
  void Refused(v1::Reason reason) override {
    refused[v1::Reason_IsValid(reason) ? reason : v1::REASON_UNSPECIFIED].Add();
  }
  void TaskWaited(std::chrono::nanoseconds waited) override { task_waits.Add(waited); }
  void PolicyRead(bool good) override { policies_read[good ? 1 : 0].Add(); }
  void LinesLeftOut(uint64_t count) override { lines_left_out.Add(count); }

  stats::Counter sessions_attached;
  std::array<stats::Counter, broker::kSessionEnds> sessions_ended;
  stats::Durations cleanups;
  std::array<stats::Counter, broker::kLeaseEnds> leases_ended;
  std::array<stats::Counter, broker::kDeviceEvents> device_events;
  std::array<stats::Counter, v1::Reason_ARRAYSIZE> refused;
  stats::Durations task_waits;
  std::array<stats::Counter, 2> policies_read;
  stats::Counter lines_left_out;
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_METRICS_COUNTERS_H_
