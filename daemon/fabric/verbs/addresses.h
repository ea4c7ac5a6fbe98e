// IP addresses: a device's own, and those that callers name as text.
#ifndef MRD_DAEMON_FABRIC_VERBS_ADDRESSES_H_
#define MRD_DAEMON_FABRIC_VERBS_ADDRESSES_H_

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/api.h"

namespace mrd::fabric::verbs {

// Those of all its ports, in no order that means something. Link-local ones are left out: they are
// ambiguous without an interface. Asks the kernel.
std::vector<std::string> AddressesOf(Api& api, ibv_context* context, const DeviceInfo& device);

// Error: ADDRESS_INVALID.
absl::StatusOr<sockaddr_storage> ParseAddress(const std::string& address, uint32_t port);

std::string AddressText(const sockaddr_storage& address);
uint32_t PortOf(const sockaddr_storage& address);
// "10.9.0.1 port 7000", for people.
std::string EndpointText(const sockaddr_storage& address);

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_ADDRESSES_H_
