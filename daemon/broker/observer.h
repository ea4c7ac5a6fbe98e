// Who counts what happens in the broker. The broker knows no metrics: it says that something
// happened, and goes on.
#ifndef MRD_DAEMON_BROKER_OBSERVER_H_
#define MRD_DAEMON_BROKER_OBSERVER_H_

#include <chrono>
#include <cstdint>

#include "mrd/v1/error.pb.h"

namespace mrd::broker {

// What a session ended by: what was noticed first.
enum class SessionEnd {
  kHangUp,    // Its attach socket: closed by the client, or by the kernel at its death.
  kPidfd,     // Its process ended while something else kept the socket open.
  kProtocol,  // It broke the attach protocol.
  kRevoked,   // The operator's or the daemon's word.
  kShutdown,  // The daemon ends.
  kNotBack,   // After a restart of the daemon its client did not attach it again in time.
  kDrained,   // It was left when the deadline of the operator's drain was over.
};
inline constexpr int kSessionEnds = 6;

enum class LeaseEnd { kDeregistered, kSessionEnded, kLapsed, kRevoked, kDeviceRemoved };
inline constexpr int kLeaseEnds = 5;

enum class DeviceEvent { kAdded, kRemoved, kPortUp, kPortDown, kFatal };
inline constexpr int kDeviceEvents = 5;

// Methods are called from any thread, under locks too, on the way of clients' calls: they count and
// return, and call nothing of the broker's.
class Observer {
 public:
  virtual ~Observer() = default;

  virtual void SessionAttached() {}
  // It holds nothing any more; `took`: from when its end was noticed.
  virtual void SessionEnded(SessionEnd, std::chrono::nanoseconds /*took*/) {}
  virtual void LeasesEnded(LeaseEnd, uint64_t /*count*/) {}
  virtual void DeviceChanged(DeviceEvent) {}
  // A call, or an attempt to attach, was refused.
  virtual void Refused(v1::Reason) {}
  // Work of the registrar's began so long after it was queued.
  virtual void TaskWaited(std::chrono::nanoseconds) {}
  // A policy was read: now in force, or refused whole.
  virtual void PolicyRead(bool /*good*/) {}
  // Lines that were not written because of whom they speak of has caused too many.
  virtual void LinesLeftOut(uint64_t /*count*/) {}

  // Counts nothing.
  static Observer& None() {
    static Observer none;
    return none;
  }
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_OBSERVER_H_
