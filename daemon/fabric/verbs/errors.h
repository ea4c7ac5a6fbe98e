// errno to reason, in one place: which limit was hit, with which values, and what to do about it.
#ifndef MRD_DAEMON_FABRIC_VERBS_ERRORS_H_
#define MRD_DAEMON_FABRIC_VERBS_ERRORS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/api.h"
#include "daemon/fabric/verbs/drivers.h"

namespace mrd::fabric::verbs {

// What a call was about when it failed.
struct Failed {
  const DeviceInfo& device;
  std::string_view what;        // "a protection domain", for people.
  std::string_view limit_name;  // Of the device's attribute that bounds it: "max_pd".
  uint64_t limit = 0;
  uint64_t used = 0;  // By this daemon.
};

// A device's call that failed. Of a registration only what RegisterError does not know better.
absl::Status DeviceError(const Failed& failed, int error);

// A registration.
absl::Status RegisterError(Api& api, const DriverFacts& driver, const Failed& failed,
                           const RegionSpec& spec, int error);

// Binding or listening on `address` ("10.9.0.1 port 7000").
absl::Status BindError(std::string_view address, int error);

// No rdma_cm id or event channel for a connection with `peer`: a fault of this host, not of the
// peer.
absl::Status IdError(std::string_view peer, int error);

// Connecting to, or being connected by, `peer`. What this host lacks (memory, descriptors) is told
// as DeviceError has it.
absl::Status ConnectionError(std::string_view peer, std::string_view what, int error);

// DEVICE_REMOVED; `error` is 0 where the daemon itself knew.
absl::Status RemovedError(const DeviceInfo& device, int error);

// Whether a device that is gone gives this errno.
bool MeansRemoved(int error);

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_ERRORS_H_
