#include "daemon/fabric/verbs/device.h"

#include <errno.h>

#include <algorithm>

#include "daemon/fabric/verbs/addresses.h"
#include "daemon/fabric/verbs/domain.h"

namespace mrd::fabric::verbs {
namespace {

// What a process can map on x86-64 and arm64 with 4-level page tables.
constexpr uint64_t kAddressSpace = uint64_t{1} << 47;

v1::Device::Transport TransportOf(ibv_node_type node_type, uint8_t link_layer) {
  if (node_type == IBV_NODE_RNIC) return v1::Device::IWARP;
  if (node_type != IBV_NODE_CA) return v1::Device::TRANSPORT_UNSPECIFIED;
  return link_layer == IBV_LINK_LAYER_ETHERNET ? v1::Device::ROCE : v1::Device::INFINIBAND;
}

AccessMask AccessOf(const ibv_device_attr_ex& attr) {
  // RELAXED_ORDERING is optional by its definition: a device that does not know it orders strictly.
  AccessMask access = Bit(v1::LOCAL_WRITE) | Bit(v1::REMOTE_WRITE) | Bit(v1::REMOTE_READ) |
                      Bit(v1::RELAXED_ORDERING) | Bit(v1::HUGETLB);
  // siw registers with REMOTE_ATOMIC and has no atomics: only the attribute tells.
  if (attr.orig_attr.atomic_cap != IBV_ATOMIC_NONE) access |= Bit(v1::REMOTE_ATOMIC);
  if ((attr.odp_caps.general_caps & IBV_ODP_SUPPORT) != 0) access |= Bit(v1::ON_DEMAND);
  return access;
}

}  // namespace

absl::StatusOr<std::shared_ptr<Device>> Device::Make(Api& api, ibv_context* context,
                                                     bool of_rdma_cm, uint64_t generation,
                                                     absl::AnyInvocable<void(bool gone)> close) {
  std::shared_ptr<Device> device(new Device(api, context, std::move(close)));
  device->of_rdma_cm_ = of_rdma_cm;
  if (absl::Status status = device->Query(generation); !status.ok()) return status;
  return device;
}

Device::~Device() { close_(gone()); }

absl::Status Device::Gone() const { return RemovedError(info_, 0); }

bool Device::Disassociated() {
  if (disassociated_) return true;
  ibv_device_attr_ex attr = {};
  if (MeansRemoved(api_.QueryDevice(context_, &attr))) disassociated_ = true;
  return disassociated_;
}

absl::Status Device::Query(uint64_t generation) {
  info_.name = context_->device->name;
  ibv_device_attr_ex attr = {};
  if (const int error = api_.QueryDevice(context_, &attr); error != 0) {
    return DeviceError({info_, "list of its attributes", "", 0, 0}, error);
  }
  const ibv_node_type node_type = context_->device->node_type;
  ports_ = attr.orig_attr.phys_port_cnt;
  ibv_port_attr port = {};
  if (ports_ > 0) api_.QueryPort(context_, 1, &port);
  driver_ = FactsOf(node_type, attr.orig_attr.vendor_id);

  info_.transport = TransportOf(node_type, port.link_layer);
  info_.endpoints = of_rdma_cm_ && (node_type == IBV_NODE_CA || node_type == IBV_NODE_RNIC);
  info_.any_address = !driver_.ignores_iova;
  info_.max_region_bytes = driver_.enforces_memlock ? kAddressSpace : attr.orig_attr.max_mr_size;
  info_.max_regions = std::max(attr.orig_attr.max_mr, 0);
  info_.access = AccessOf(attr);
  info_.generation = generation;
  info_.opened = std::chrono::system_clock::now();
  max_domains_ = std::max(attr.orig_attr.max_pd, 0);
  max_queue_pairs_ = std::max(attr.orig_attr.max_qp, 0);
  info_.dma_buf = ProbeDmaBuf();
  return absl::OkStatus();
}

bool Device::ProbeDmaBuf() {
  const auto pd = api_.AllocPd(context_);
  if (!pd.ok()) return false;
  // No such descriptor: EBADF from a driver that would take one, EOPNOTSUPP or the like from
  // others.
  const auto mr = api_.RegDmaBufMr(pd.value, 0, 4096, 0, -1, IBV_ACCESS_LOCAL_WRITE);
  if (mr.ok()) api_.DeregMr(mr.value);
  api_.DeallocPd(pd.value);
  return mr.error == EBADF;
}

DeviceInfo Device::Describe() const {
  DeviceInfo info = info_;
  for (int number = 1; number <= ports_; ++number) {
    ibv_port_attr port = {};
    if (api_.QueryPort(context_, number, &port) == 0) info.active |= port.state == IBV_PORT_ACTIVE;
  }
  info.addresses = AddressesOf(api_, context_, info_);
  return info;
}

absl::StatusOr<std::shared_ptr<Domain>> Device::CreateDomain() {
  if (gone()) return Gone();
  const auto pd = api_.AllocPd(context_);
  if (!pd.ok()) return DeviceError(FailedDomain(), pd.error);
  return std::make_shared<VerbsDomain>(shared_from_this(), pd.value);
}

}  // namespace mrd::fabric::verbs
