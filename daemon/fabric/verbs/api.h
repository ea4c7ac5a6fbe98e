// Every system call and verb that the verbs fabric makes, and nothing else: the one place where
// tests put something in place of the kernel (tests/fake), so that every errno can be produced
// without hardware.
//
// Each function does what the man page of its namesake says. Errors come as errno values in the
// result; 0 is success. Thread safety: as the libraries have it, that is, any thread; calls for one
// rdma_cm_id one at a time.
#ifndef MRD_DAEMON_FABRIC_VERBS_API_H_
#define MRD_DAEMON_FABRIC_VERBS_API_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/fabric/verbs/result.h"
#include "daemon/fabric/verbs/uverbs.h"

namespace mrd::fabric::verbs {

// An IP address of a network interface of this host.
struct NetAddress {
  uint32_t ifindex = 0;
  std::string ifname;
  std::string text;
};

// What the kernel tells when an RDMA device, or its file in /dev/infiniband, comes or goes.
struct Uevent {
  std::string action;  // "add", "remove", "change"
  std::string name;    // Of the kernel object: "rxe0", "uverbs0".
};

class Api {
 public:
  virtual ~Api() = default;

  // --- Devices.

  // rdma_get_devices(3): the contexts that rdma_cm uses itself, ended by a null pointer. A
  // protection domain for an rdma_cm id's queue pair must be made on one of these.
  virtual Result<ibv_context**> GetDevices() = 0;
  virtual void FreeDevices(ibv_context** list) = 0;
  virtual Result<ibv_device**> GetDeviceList() = 0;  // ibv_get_device_list(3)
  virtual void FreeDeviceList(ibv_device** list) = 0;
  // ibv_get_device_index(3): never the same for two devices, of one name neither. -1: the library
  // had to look in sysfs, as without a netlink socket, and takes no device for one that it knows.
  virtual int DeviceIndex(ibv_device* device) = 0;
  virtual Result<ibv_context*> OpenDevice(ibv_device* device) = 0;
  virtual int CloseDevice(ibv_context* context) = 0;
  // Closes the descriptors of one of rdma_cm's contexts and puts /dev/null in their place, so that
  // the kernel can remove the device. Nobody can have librdmacm itself close a context: it does it
  // when a further rdma_get_devices misses the device and the last id and list with it are gone,
  // and never where the device was the host's last (sync_devices_list gives up at an empty list).
  // What the library still calls on it (ibv_dealloc_pd of its own domain, ibv_close_device)
  // succeeds on /dev/null. REQUIRES: nothing made on it is left.
  virtual void LetGo(ibv_context* context) = 0;
  virtual int QueryDevice(ibv_context* context, ibv_device_attr_ex* attr) = 0;
  virtual int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) = 0;
  virtual Result<std::vector<ibv_gid_entry>> QueryGids(ibv_context* context) = 0;
  // Sets O_NONBLOCK on the context's async_fd.
  virtual int SetAsyncNonBlocking(ibv_context* context) = 0;
  virtual Result<ibv_async_event> GetAsyncEvent(ibv_context* context) = 0;  // EAGAIN: none.
  virtual void AckAsyncEvent(ibv_async_event* event) = 0;

  // Which driver the kernel has behind it (rdma_driver_id), by its RDMA netlink.
  virtual Result<uint32_t> DriverId(ibv_context* context) = 0;
  // Contexts of an earlier process.
  virtual Uverbs& uverbs() = 0;

  // --- Memory.

  virtual Result<ibv_pd*> AllocPd(ibv_context* context) = 0;
  virtual int DeallocPd(ibv_pd* pd) = 0;
  virtual Result<ibv_mr*> RegMr(ibv_pd* pd, void* va, uint64_t length, uint64_t iova,
                                int access) = 0;  // ibv_reg_mr_iova(3)
  virtual Result<ibv_mr*> RegDmaBufMr(ibv_pd* pd, uint64_t offset, uint64_t length, uint64_t iova,
                                      int fd, int access) = 0;
  virtual int DeregMr(ibv_mr* mr) = 0;

  // --- Endpoints.

  virtual Result<ibv_cq*> CreateCq(ibv_context* context, int entries) = 0;
  virtual int DestroyCq(ibv_cq* cq) = 0;
  // The channel's descriptor does not block.
  virtual Result<rdma_event_channel*> CreateEventChannel() = 0;
  virtual void DestroyEventChannel(rdma_event_channel* channel) = 0;
  // In the port space RDMA_PS_TCP.
  virtual Result<rdma_cm_id*> CreateId(rdma_event_channel* channel) = 0;
  virtual int DestroyId(rdma_cm_id* id) = 0;
  virtual int MigrateId(rdma_cm_id* id, rdma_event_channel* channel) = 0;
  virtual int BindAddr(rdma_cm_id* id, sockaddr* address) = 0;
  virtual int Listen(rdma_cm_id* id, int backlog) = 0;
  // `source` may be null.
  virtual int ResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* destination,
                          int timeout_ms) = 0;
  virtual int ResolveRoute(rdma_cm_id* id, int timeout_ms) = 0;
  virtual int CreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) = 0;
  virtual void DestroyQp(rdma_cm_id* id) = 0;
  virtual int Connect(rdma_cm_id* id, rdma_conn_param* param) = 0;
  virtual int Accept(rdma_cm_id* id, rdma_conn_param* param) = 0;
  virtual int Reject(rdma_cm_id* id) = 0;
  virtual int Disconnect(rdma_cm_id* id) = 0;
  virtual Result<rdma_cm_event*> GetCmEvent(rdma_event_channel* channel) = 0;  // EAGAIN: none.
  virtual void AckCmEvent(rdma_cm_event* event) = 0;

  // --- Hot-plug.

  // Begins to hear the kernel's uevents of the subsystems infiniband and infiniband_verbs (no udev
  // daemon is needed); once. A descriptor to poll, which stays the Api's.
  virtual Result<int> OpenUevents() = 0;
  virtual Result<Uevent> ReadUevent() = 0;  // EAGAIN: none. ENOBUFS: some were lost.

  // --- The host.

  // getrlimit(RLIMIT_MEMLOCK), the soft limit in bytes; UINT64_MAX: none.
  virtual uint64_t MemlockLimit() = 0;
  // Whether the kernel's capable(CAP_IPC_LOCK) holds: in the effective set, and of the first user
  // namespace.
  virtual bool HasIpcLock() = 0;
  // VmPin of /proc/self/status, in bytes: what this process has pinned, each registration counted
  // on its own.
  virtual uint64_t PinnedBytes() = 0;
  // IP addresses of all interfaces of this network namespace that are up; getifaddrs(3).
  virtual std::vector<NetAddress> NetAddresses() = 0;
  // The interface indices of the device's ports in this network namespace, by the kernel's RDMA
  // netlink.
  virtual std::vector<uint32_t> PortInterfaces(ibv_context* context) = 0;
  // The network interfaces of the device's own bus function:
  // /sys/class/infiniband/DEVICE/device/net.
  virtual std::vector<std::string> ParentInterfaces(const std::string& device) = 0;
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_API_H_
