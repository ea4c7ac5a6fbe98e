// What can be done with a device's context by its descriptor alone, from another process than the
// one that opened it: the ioctl interface of the kernel's uverbs (drivers/infiniband/core/
// uverbs_ioctl.c). Its write() interface refuses another process's descriptor with EACCES
// (ib_safe_file_access), and ibv_import_device(3) is taken by few drivers.
#ifndef MRD_DAEMON_FABRIC_VERBS_UVERBS_H_
#define MRD_DAEMON_FABRIC_VERBS_UVERBS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/fabric/verbs/result.h"

namespace mrd::fabric::verbs {

// A context: its descriptor, and which driver the kernel is to find behind it (rdma_driver_id of
// ib_user_ioctl_verbs.h); with another one it answers EINVAL.
struct UverbsContext {
  int fd = -1;
  uint32_t driver_id = 0;
};

enum class UverbsObject { kPd, kMr, kQp, kCq };

struct MrFacts {
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  uint64_t length = 0;
  uint64_t iova = 0;
};

struct MrWish {
  uint32_t pd = 0;
  uint64_t va = 0;  // In this process.
  uint64_t length = 0;
  uint64_t iova = 0;
  int access = 0;  // IBV_ACCESS_*
};

struct NewMr {
  uint32_t handle = 0;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
};

struct HandleList {
  std::vector<uint32_t> handles;
  bool all = true;  // The kernel can tell 16,383 of a kind, and does not say that there are more.
};

// Thread-safe. Tests put a kernel of their own in its place.
class Uverbs {
 public:
  virtual ~Uverbs() = default;
  // Whether the descriptor's device is there, under this name. The kernel takes its character
  // device away at once when it is unplugged, and gives the name to no other one while a descriptor
  // is open (ib_uverbs_remove_one, assign_name); it may give away the number. True where sysfs does
  // not tell.
  virtual bool IsThere(const UverbsContext& context, const std::string& device) = 0;
  // UVERBS_METHOD_INFO_HANDLES. ENOTTY: it is no context's descriptor; EIO: the device has gone.
  virtual Result<HandleList> Handles(const UverbsContext& context, UverbsObject object) = 0;
  virtual Result<MrFacts> QueryMr(const UverbsContext& context, uint32_t handle) = 0;
  // MR_DESTROY and so on. ENOENT: there is none of this handle; EBUSY: it is in use.
  virtual int Destroy(const UverbsContext& context, UverbsObject object, uint32_t handle) = 0;
  // IB_USER_VERBS_CMD_REG_MR by UVERBS_METHOD_INVOKE_WRITE, with the data that the driver is known
  // to need; EINVAL from one that needs other data.
  virtual Result<NewMr> RegMr(const UverbsContext& context, const MrWish& wish) = 0;
};

// The kernel's.
Uverbs& RealUverbs();

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_UVERBS_H_
