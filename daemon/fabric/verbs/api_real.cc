#include "daemon/fabric/verbs/api_real.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "daemon/fabric/verbs/rdma_netlink.h"
#include "daemon/fabric/verbs/uevents.h"

namespace mrd::fabric::verbs {
namespace {

// PROC_USER_INIT_INO of the kernel's include/linux/proc_ns.h: the inode of the first user
// namespace.
constexpr ino_t kFirstUserNamespace = 0xEFFFFFFD;

// A pointer, or errno. Libraries that fail without one leave EIO.
template <typename T>
Result<T*> Pointer(T* value) {
  if (value != nullptr) return {value, 0};
  return {nullptr, errno != 0 ? errno : EIO};
}

// librdmacm's convention: -1 and errno.
int CmResult(int result) {
  if (result == 0) return 0;
  return errno != 0 ? errno : EIO;
}

int SetNonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? errno : 0;
}

// Opened at the start: when it is needed, there may be no descriptor left.
int OpenNull() {
  const int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (fd >= 0) return fd;
  perror("mrd: /dev/null");
  abort();
}

class RealApi final : public Api {
 public:
  RealApi() : null_(OpenNull()) {}
  ~RealApi() override { close(null_); }

  Result<ibv_context**> GetDevices() override {
    errno = 0;
    return Pointer(rdma_get_devices(nullptr));
  }
  void FreeDevices(ibv_context** list) override { rdma_free_devices(list); }

  Result<ibv_device**> GetDeviceList() override {
    errno = 0;
    return Pointer(ibv_get_device_list(nullptr));
  }
  void FreeDeviceList(ibv_device** list) override { ibv_free_device_list(list); }
  int DeviceIndex(ibv_device* device) override { return ibv_get_device_index(device); }

  Result<ibv_context*> OpenDevice(ibv_device* device) override {
    errno = 0;
    return Pointer(ibv_open_device(device));
  }
  int CloseDevice(ibv_context* context) override { return ibv_close_device(context); }
  void LetGo(ibv_context* context) override {
    // The events' descriptor holds the context in the kernel like the other.
    for (const int fd : {context->async_fd, context->cmd_fd}) dup3(null_, fd, O_CLOEXEC);
  }

  int QueryDevice(ibv_context* context, ibv_device_attr_ex* attr) override {
    return ibv_query_device_ex(context, nullptr, attr);
  }
  int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) override {
    return ibv_query_port(context, port, attr);
  }
  Result<std::vector<ibv_gid_entry>> QueryGids(ibv_context* context) override {
    std::vector<ibv_gid_entry> entries(1024);
    const ssize_t count = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
    if (count < 0) return {{}, static_cast<int>(-count)};
    entries.resize(count);
    return {std::move(entries), 0};
  }

  int SetAsyncNonBlocking(ibv_context* context) override {
    return SetNonBlocking(context->async_fd);
  }
  Result<ibv_async_event> GetAsyncEvent(ibv_context* context) override {
    ibv_async_event event = {};
    errno = 0;
    if (ibv_get_async_event(context, &event) != 0) return {event, errno != 0 ? errno : EIO};
    return {event, 0};
  }
  void AckAsyncEvent(ibv_async_event* event) override { ibv_ack_async_event(event); }

  Result<uint32_t> DriverId(ibv_context* context) override {
    const int index = ibv_get_device_index(context->device);
    if (index < 0) return {0, ENODEV};
    const auto driver = UverbsDriverId(static_cast<uint32_t>(index));
    if (!driver) return {0, EOPNOTSUPP};
    return {*driver, 0};
  }
  Uverbs& uverbs() override { return RealUverbs(); }

  Result<ibv_pd*> AllocPd(ibv_context* context) override {
    errno = 0;
    return Pointer(ibv_alloc_pd(context));
  }
  int DeallocPd(ibv_pd* pd) override { return ibv_dealloc_pd(pd); }

  Result<ibv_mr*> RegMr(ibv_pd* pd, void* va, uint64_t length, uint64_t iova, int access) override {
    errno = 0;
    return Pointer(ibv_reg_mr_iova(pd, va, length, iova, access));
  }
  Result<ibv_mr*> RegDmaBufMr(ibv_pd* pd, uint64_t offset, uint64_t length, uint64_t iova, int fd,
                              int access) override {
    errno = 0;
    return Pointer(ibv_reg_dmabuf_mr(pd, offset, length, iova, fd, access));
  }
  int DeregMr(ibv_mr* mr) override { return ibv_dereg_mr(mr); }

  Result<ibv_cq*> CreateCq(ibv_context* context, int entries) override {
    errno = 0;
    return Pointer(ibv_create_cq(context, entries, nullptr, nullptr, 0));
  }
  int DestroyCq(ibv_cq* cq) override { return ibv_destroy_cq(cq); }

  Result<rdma_event_channel*> CreateEventChannel() override {
    errno = 0;
    auto channel = Pointer(rdma_create_event_channel());
    if (!channel.ok()) return channel;
    if (const int error = SetNonBlocking(channel.value->fd); error != 0) {
      rdma_destroy_event_channel(channel.value);
      return {nullptr, error};
    }
    return channel;
  }
  void DestroyEventChannel(rdma_event_channel* channel) override {
    rdma_destroy_event_channel(channel);
  }

  Result<rdma_cm_id*> CreateId(rdma_event_channel* channel) override {
    rdma_cm_id* id = nullptr;
    const int error = CmResult(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP));
    return {id, error};
  }
  int DestroyId(rdma_cm_id* id) override { return CmResult(rdma_destroy_id(id)); }
  int MigrateId(rdma_cm_id* id, rdma_event_channel* channel) override {
    return CmResult(rdma_migrate_id(id, channel));
  }
  int BindAddr(rdma_cm_id* id, sockaddr* address) override {
    return CmResult(rdma_bind_addr(id, address));
  }
  int Listen(rdma_cm_id* id, int backlog) override { return CmResult(rdma_listen(id, backlog)); }
  int ResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* destination,
                  int timeout_ms) override {
    return CmResult(rdma_resolve_addr(id, source, destination, timeout_ms));
  }
  int ResolveRoute(rdma_cm_id* id, int timeout_ms) override {
    return CmResult(rdma_resolve_route(id, timeout_ms));
  }
  int CreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) override {
    return CmResult(rdma_create_qp(id, pd, attr));
  }
  void DestroyQp(rdma_cm_id* id) override { rdma_destroy_qp(id); }
  int Connect(rdma_cm_id* id, rdma_conn_param* param) override {
    return CmResult(rdma_connect(id, param));
  }
  int Accept(rdma_cm_id* id, rdma_conn_param* param) override {
    return CmResult(rdma_accept(id, param));
  }
  int Reject(rdma_cm_id* id) override { return CmResult(rdma_reject(id, nullptr, 0)); }
  int Disconnect(rdma_cm_id* id) override { return CmResult(rdma_disconnect(id)); }
  Result<rdma_cm_event*> GetCmEvent(rdma_event_channel* channel) override {
    rdma_cm_event* event = nullptr;
    const int error = CmResult(rdma_get_cm_event(channel, &event));
    return {event, error};
  }
  void AckCmEvent(rdma_cm_event* event) override { rdma_ack_cm_event(event); }

  Result<int> OpenUevents() override { return uevents_.Open(); }
  Result<Uevent> ReadUevent() override { return uevents_.Read(); }

  uint64_t MemlockLimit() override {
    rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return UINT64_MAX;
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
  }

  bool HasIpcLock() override {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
    if (syscall(SYS_capget, &header, data) != 0) return false;
    struct stat name_space;
    return (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) != 0 &&
           stat("/proc/self/ns/user", &name_space) == 0 && name_space.st_ino == kFirstUserNamespace;
  }

  uint64_t PinnedBytes() override {
    std::ifstream status("/proc/self/status");
    constexpr std::string_view kKey = "VmPin:";
    for (std::string line; std::getline(status, line);) {
      if (line.compare(0, kKey.size(), kKey) == 0) {
        return strtoull(line.c_str() + kKey.size(), nullptr, 10) * 1024;
      }
    }
    return 0;
  }

  std::vector<NetAddress> NetAddresses() override {
    std::vector<NetAddress> addresses;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return addresses;
    for (const ifaddrs* it = list; it != nullptr; it = it->ifa_next) {
      if (it->ifa_addr == nullptr || (it->ifa_flags & IFF_UP) == 0) continue;
      const void* raw = nullptr;
      if (it->ifa_addr->sa_family == AF_INET) {
        raw = &reinterpret_cast<const sockaddr_in*>(it->ifa_addr)->sin_addr;
      } else if (it->ifa_addr->sa_family == AF_INET6) {
        raw = &reinterpret_cast<const sockaddr_in6*>(it->ifa_addr)->sin6_addr;
      } else {
        continue;
      }
      char text[INET6_ADDRSTRLEN];
      if (inet_ntop(it->ifa_addr->sa_family, raw, text, sizeof text) == nullptr) continue;
      addresses.push_back({if_nametoindex(it->ifa_name), it->ifa_name, text});
    }
    freeifaddrs(list);
    return addresses;
  }

  std::vector<uint32_t> PortInterfaces(ibv_context* context) override {
    const int index = ibv_get_device_index(context->device);
    return index < 0 ? std::vector<uint32_t>() : PortInterfaceIndices(index);
  }

  std::vector<std::string> ParentInterfaces(const std::string& device) override {
    std::vector<std::string> names;
    std::error_code error;
    const std::string path = "/sys/class/infiniband/" + device + "/device/net";
    for (std::filesystem::directory_iterator it(path, error), end; !error && it != end;
         it.increment(error)) {
      names.push_back(it->path().filename());
    }
    return names;
  }

 private:
  const int null_;
  Uevents uevents_;
};

}  // namespace

std::unique_ptr<Api> MakeRealApi() {
  // With it libibverbs makes a success of each EIO of a destruction (verbs_is_destroy_err), also
  // that of a device which is there and whose driver did not end the region. Without it some bytes
  // are lost for each object of a device that goes.
  unsetenv("RDMAV_ALLOW_DISASSOC_DESTROY");
  return std::make_unique<RealApi>();
}

}  // namespace mrd::fabric::verbs
