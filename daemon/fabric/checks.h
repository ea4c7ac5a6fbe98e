// The checks of a registration and of a connection that hold for every fabric, made before anything
// is pinned or sent.
#ifndef MRD_DAEMON_FABRIC_CHECKS_H_
#define MRD_DAEMON_FABRIC_CHECKS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "daemon/fabric/fabric.h"

namespace mrd::fabric {

// rdma_accept(3) and rdma_connect(3) for the port space RDMA_PS_TCP.
inline constexpr size_t kMaxAcceptData = 196;
inline constexpr size_t kMaxConnectData = 56;

// Whether `device` can do what `spec` asks for. A length is refused, never shortened.
absl::Status CheckRegion(const DeviceInfo& device, const RegionSpec& spec);

absl::Status CheckPrivateData(const std::string& data, size_t max);

absl::Status CheckPort(uint32_t port);

// "REMOTE_WRITE|REMOTE_READ", for people.
std::string AccessNames(AccessMask access);

}  // namespace mrd::fabric

#endif  // MRD_DAEMON_FABRIC_CHECKS_H_
