// Which network interfaces belong to an RDMA device: only the kernel's RDMA netlink tells it for
// iWARP.
#ifndef MRD_DAEMON_FABRIC_VERBS_RDMA_NETLINK_H_
#define MRD_DAEMON_FABRIC_VERBS_RDMA_NETLINK_H_

#include <cstdint>
#include <vector>

namespace mrd::fabric::verbs {

// The interface indices of the ports of the device with this index (ibv_get_device_index(3)), of
// this network namespace. Empty when there are none, or when the kernel does not tell.
std::vector<uint32_t> PortInterfaceIndices(uint32_t device_index);

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_RDMA_NETLINK_H_
