// soft0: its limits, its keys, and the domains and regions on it.
#ifndef MRD_DAEMON_FABRIC_SOFT_SOFT_DEVICE_H_
#define MRD_DAEMON_FABRIC_SOFT_SOFT_DEVICE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/soft/key_table.h"

namespace mrd::fabric {

inline constexpr char kSoftDevice[] = "soft0";
inline constexpr uint64_t kSoftGeneration = 1;  // It is opened once, and stays.

// Thread safety: any thread.
class SoftDevice {
 public:
  SoftDevice();

  const DeviceInfo& info() const { return info_; }
  KeyTable& keys() { return keys_; }

  std::shared_ptr<Domain> CreateDomain();

 private:
  const DeviceInfo info_;
  KeyTable keys_;
};

}  // namespace mrd::fabric

#endif  // MRD_DAEMON_FABRIC_SOFT_SOFT_DEVICE_H_
