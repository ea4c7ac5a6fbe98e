// Devices that come and go: each removal ends all that lies on the device, and sessions are told.
#ifndef MRD_DAEMON_BROKER_DEVICE_WATCH_H_
#define MRD_DAEMON_BROKER_DEVICE_WATCH_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/broker/lease.h"
#include "daemon/fabric/fabric.h"
#include "daemon/mutex.h"

namespace mrd::broker {

class Broker;

// Thread-safe.
class DeviceWatch {
 public:
  explicit DeviceWatch(Broker& broker) : broker_(broker) {}

  // Reads the devices for the first time, and hears of the fabric's changes from then on. May
  // block.
  void Start();

  // Has a thread of the registrar look which devices there are, and do what follows. Never blocks;
  // calls that come together share one look, which begins after them.
  void Look() MRD_EXCLUDES(mutex_);

  // That opening of a device is given up, and the older ones of its name: ends what lies there.
  void Remove(const fabric::DeviceInfo& device) MRD_EXCLUDES(mutex_);

  // Whether that opening of a device was given up. Asked under a session's lock before something on
  // the device is given to the session: whoever ends all on it sets this first and then looks at
  // each session under its lock, so that nothing slips in behind it.
  bool IsGone(const std::string& name, uint64_t generation) const;
  bool IsGone(const fabric::DeviceInfo& device) const {
    return IsGone(device.name, device.generation);
  }

 private:
  struct Pending {
    int removals = 0;
    std::vector<fabric::DeviceInfo> added;
  };

  void Run() MRD_EXCLUDES(mutex_);
  void LookOnce() MRD_EXCLUDES(mutex_);
  void Removed(const std::string& name) MRD_EXCLUDES(mutex_);
  // At once, or when all removals of that name are through: a session must not take the old one's
  // end for the new one's.
  void Add(const fabric::DeviceInfo& device) MRD_EXCLUDES(mutex_);
  void Announce(const fabric::DeviceInfo& device);
  void NoteStates(const std::vector<DeviceRef>& devices);

  Broker& broker_;
  std::atomic<bool> any_gone_ = false;  // Most hosts never lose a device: no lock then.
  mutable Mutex mutex_;
  bool wanted_ MRD_GUARDED_BY(mutex_) = false;
  bool running_ MRD_GUARDED_BY(mutex_) = false;
  std::map<std::string, uint64_t> gone_ MRD_GUARDED_BY(mutex_);    // The last such generation.
  std::map<std::string, Pending> pending_ MRD_GUARDED_BY(mutex_);  // By name.
  // The looking thread's own: whether a port was up at the last look.
  std::map<std::pair<std::string, uint64_t>, bool> states_;
};

// The refusal of what was to be made on a device that went away.
absl::Status DeviceRemoved(const std::string& device);

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_DEVICE_WATCH_H_
