#include "daemon/fabric/verbs/uverbs.h"

#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <rdma/siw-abi.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <fstream>
#include <random>

namespace mrd::fabric::verbs {
namespace {

// Devices of sysfs.
constexpr char kDevicesByNumber[] = "/sys/dev/char";

// What an attribute's 16 bits of length have room for.
constexpr uint16_t kMostHandles = UINT16_MAX / sizeof(uint32_t);

// One call: a header and its attributes, as the kernel wants them behind each other.
class Call {
 public:
  Call(const UverbsContext& context, uint16_t object, uint16_t method) : fd_(context.fd) {
    header().object_id = object;
    header().method_id = method;
    header().driver_id = context.driver_id;
  }

  // Bytes that the kernel reads; up to 8 of them lie in the attribute itself.
  void In(uint16_t id, const void* bytes, uint16_t length) {
    ib_uverbs_attr& attribute = Add(id, length);
    if (length <= sizeof attribute.data) {
      memcpy(&attribute.data, bytes, length);
    } else {
      attribute.data = reinterpret_cast<uint64_t>(bytes);
    }
  }
  // Bytes that it writes.
  void Out(uint16_t id, void* bytes, uint16_t length) {
    Add(id, length).data = reinterpret_cast<uint64_t>(bytes);
  }
  // A handle.
  void Object(uint16_t id, uint32_t handle) { Add(id, 0).data = handle; }
  // A constant, by its 8 bytes.
  void Constant(uint16_t id, uint64_t value) { In(id, &value, sizeof value); }
  int Run() {
    header().length = sizeof(ib_uverbs_ioctl_hdr) + header().num_attrs * sizeof(ib_uverbs_attr);
    return ioctl(fd_, RDMA_VERBS_IOCTL, command_) == 0 ? 0 : errno;
  }

 private:
  static constexpr size_t kMost = 6;

  ib_uverbs_ioctl_hdr& header() { return *reinterpret_cast<ib_uverbs_ioctl_hdr*>(command_); }

  ib_uverbs_attr& Add(uint16_t id, uint16_t length) {
    ib_uverbs_attr& attribute = header().attrs[header().num_attrs++];
    attribute.attr_id = id;
    attribute.len = length;
    attribute.flags = UVERBS_ATTR_F_MANDATORY;
    return attribute;
  }

  const int fd_;
  alignas(ib_uverbs_ioctl_hdr) char command_[sizeof(ib_uverbs_ioctl_hdr) +
                                             kMost * sizeof(ib_uverbs_attr)] = {};
};

uint16_t IdOf(UverbsObject object) {
  switch (object) {
    case UverbsObject::kPd:
      return UVERBS_OBJECT_PD;
    case UverbsObject::kMr:
      return UVERBS_OBJECT_MR;
    case UverbsObject::kQp:
      return UVERBS_OBJECT_QP;
    case UverbsObject::kCq:
      return UVERBS_OBJECT_CQ;
  }
  return 0;
}

class Kernel final : public Uverbs {
 public:
  bool IsThere(const UverbsContext& context, const std::string& device) override {
    struct stat file;
    if (fstat(context.fd, &file) < 0 || access(kDevicesByNumber, F_OK) < 0) return true;
    std::ifstream attribute(std::string(kDevicesByNumber) + "/" +
                            std::to_string(major(file.st_rdev)) + ":" +
                            std::to_string(minor(file.st_rdev)) + "/ibdev");
    std::string name;
    return std::getline(attribute, name) && name == device;
  }

  Result<HandleList> Handles(const UverbsContext& context, UverbsObject object) override {
    HandleList list;
    list.handles.resize(kMostHandles);
    uint32_t total = 0;
    Call call(context, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES);
    call.Constant(UVERBS_ATTR_INFO_OBJECT_ID, IdOf(object));
    call.Out(UVERBS_ATTR_INFO_TOTAL_HANDLES, &total, sizeof total);
    call.Out(UVERBS_ATTR_INFO_HANDLES_LIST, list.handles.data(),
             kMostHandles * sizeof list.handles[0]);
    if (const int error = call.Run(); error != 0) return {{}, error};
    list.all = total < kMostHandles;
    list.handles.resize(total);
    return {std::move(list), 0};
  }

  Result<MrFacts> QueryMr(const UverbsContext& context, uint32_t handle) override {
    MrFacts facts;
    Call call(context, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
    call.Object(UVERBS_ATTR_QUERY_MR_HANDLE, handle);
    call.Out(UVERBS_ATTR_QUERY_MR_RESP_LKEY, &facts.lkey, sizeof facts.lkey);
    call.Out(UVERBS_ATTR_QUERY_MR_RESP_RKEY, &facts.rkey, sizeof facts.rkey);
    call.Out(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, &facts.length, sizeof facts.length);
    call.Out(UVERBS_ATTR_QUERY_MR_RESP_IOVA, &facts.iova, sizeof facts.iova);
    const int error = call.Run();
    return {facts, error};
  }

  int Destroy(const UverbsContext& context, UverbsObject object, uint32_t handle) override {
    switch (object) {
      case UverbsObject::kPd: {
        Call call(context, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
        call.Object(UVERBS_ATTR_DESTROY_PD_HANDLE, handle);
        return call.Run();
      }
      case UverbsObject::kMr: {
        Call call(context, UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY);
        call.Object(UVERBS_ATTR_DESTROY_MR_HANDLE, handle);
        return call.Run();
      }
      case UverbsObject::kQp: {
        uint32_t events = 0;
        Call call(context, UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY);
        call.Object(UVERBS_ATTR_DESTROY_QP_HANDLE, handle);
        call.Out(UVERBS_ATTR_DESTROY_QP_RESP, &events, sizeof events);
        return call.Run();
      }
      case UverbsObject::kCq: {
        ib_uverbs_destroy_cq_resp events = {};
        Call call(context, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY);
        call.Object(UVERBS_ATTR_DESTROY_CQ_HANDLE, handle);
        call.Out(UVERBS_ATTR_DESTROY_CQ_RESP, &events, sizeof events);
        return call.Run();
      }
    }
    return EINVAL;
  }

  Result<NewMr> RegMr(const UverbsContext& context, const MrWish& wish) override {
    ib_uverbs_reg_mr request = {};
    request.start = wish.va;
    request.length = wish.length;
    request.hca_va = wish.iova;
    request.pd_handle = wish.pd;
    request.access_flags = static_cast<uint32_t>(wish.access);
    ib_uverbs_reg_mr_resp response = {};
    Call call(context, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    call.In(UVERBS_ATTR_CORE_IN, &request, sizeof request);
    call.Out(UVERBS_ATTR_CORE_OUT, &response, sizeof response);
    call.Constant(UVERBS_ATTR_WRITE_CMD, IB_USER_VERBS_CMD_REG_MR);
    // siw_reg_user_mr refuses a call without its own data: the low byte of the new key, which its
    // user-space provider takes from rand(), and where to tell the key.
    siw_ureq_reg_mr siw_request = {};
    siw_uresp_reg_mr siw_response = {};
    if (context.driver_id == RDMA_DRIVER_SIW) {
      thread_local std::minstd_rand random{std::random_device{}()};
      siw_request.stag_key = static_cast<uint8_t>(random() >> 8);
      call.In(UVERBS_ATTR_UHW_IN, &siw_request, sizeof siw_request);
      call.Out(UVERBS_ATTR_UHW_OUT, &siw_response, sizeof siw_response);
    }
    const int error = call.Run();
    return {{response.mr_handle, response.lkey, response.rkey}, error};
  }
};

}  // namespace

Uverbs& RealUverbs() {
  static Kernel kernel;
  return kernel;
}

}  // namespace mrd::fabric::verbs
