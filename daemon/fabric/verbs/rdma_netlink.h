// What only the kernel's RDMA netlink tells of a device: for iWARP, which network interfaces belong
// to it; and which driver is behind its uverbs descriptors.
#ifndef MRD_DAEMON_FABRIC_VERBS_RDMA_NETLINK_H_
#define MRD_DAEMON_FABRIC_VERBS_RDMA_NETLINK_H_

#include <cstdint>
#include <optional>
#include <vector>

namespace mrd::fabric::verbs {

// The interface indices of the ports of the device with this index (ibv_get_device_index(3)), of
// this network namespace. Empty when there are none, or when the kernel does not tell.
std::vector<uint32_t> PortInterfaceIndices(uint32_t device_index);

// rdma_driver_id (ib_user_ioctl_verbs.h) of the device with this index; nothing where the kernel
// does not tell.
std::optional<uint32_t> UverbsDriverId(uint32_t device_index);

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_RDMA_NETLINK_H_
