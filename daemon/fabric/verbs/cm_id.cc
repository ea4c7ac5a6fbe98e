#include "daemon/fabric/verbs/cm_id.h"

#include <errno.h>
#include <string.h>

#include <utility>

#include "daemon/fabric/verbs/addresses.h"
#include "daemon/fabric/verbs/domain.h"
#include "daemon/fabric/verbs/errors.h"
#include "mrd/v1/status.h"
#include "spdlog/spdlog.h"

namespace mrd::fabric::verbs {
namespace {

// Both sides' queue pairs need at least one entry with most drivers. A passive endpoint posts
// nothing: a peer's SEND finds no receive and is answered "receiver not ready".
constexpr int kEntries = 1;

}  // namespace

int CmEvent::Error() const {
  switch (type) {
    case RDMA_CM_EVENT_REJECTED:
      // InfiniBand and RoCE give the CM's reason (a positive number), iWARP a negative errno. All
      // mean refused.
      return status < 0 ? -status : ECONNREFUSED;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return ENODEV;
    case RDMA_CM_EVENT_DISCONNECTED:
      return ECONNRESET;
    default:
      return status < 0 ? -status : status;
  }
}

Result<std::unique_ptr<CmId>> CmId::Create(Api& api) {
  const auto channel = api.CreateEventChannel();
  if (!channel.ok()) return {nullptr, channel.error};
  const auto id = api.CreateId(channel.value);
  if (!id.ok()) {
    api.DestroyEventChannel(channel.value);
    return {nullptr, id.error};
  }
  return {std::unique_ptr<CmId>(new CmId(api, channel.value, id.value)), 0};
}

Result<std::unique_ptr<CmId>> CmId::Adopt(Api& api, rdma_cm_id* id) {
  const auto channel = api.CreateEventChannel();
  int error = channel.error;
  if (error == 0) error = api.MigrateId(id, channel.value);
  if (error == 0) return {std::unique_ptr<CmId>(new CmId(api, channel.value, id)), 0};
  api.Reject(id);
  api.DestroyId(id);
  if (channel.ok()) api.DestroyEventChannel(channel.value);
  return {nullptr, error};
}

CmId::~CmId() {
  if (id_->qp != nullptr) {
    api_.Disconnect(id_);  // Fails, and need not succeed, where there is no connection.
    api_.DestroyQp(id_);
    device_->queue_pairs.fetch_sub(1, std::memory_order_relaxed);
  }
  if (const int error = api_.DestroyId(id_); error != 0 && !MeansRemoved(error)) {
    spdlog::error("rdma_destroy_id: {}", ErrnoName(error));
  }
  if (cq_ != nullptr) api_.DestroyCq(cq_);
  api_.DestroyEventChannel(channel_);
}

std::optional<CmEvent> CmId::NextEvent() {
  const auto event = api_.GetCmEvent(channel_);
  if (!event.ok()) return std::nullopt;
  CmEvent copy;
  copy.type = event.value->event;
  copy.status = event.value->status;
  copy.id = event.value->id;
  const rdma_conn_param& param = event.value->param.conn;
  if (param.private_data != nullptr) {
    copy.private_data.assign(static_cast<const char*>(param.private_data), param.private_data_len);
  }
  api_.AckCmEvent(event.value);
  return copy;
}

absl::Status CmId::CreateQp(Device& device, std::shared_ptr<Domain> domain) {
  ibv_pd* const pd = static_cast<VerbsDomain*>(domain.get())->pd();
  const auto cq = api_.CreateCq(device.context(), 2 * kEntries);
  if (!cq.ok()) return DeviceError(device.FailedQueuePair(), cq.error);
  cq_ = cq.value;
  ibv_qp_init_attr attr = {};
  attr.send_cq = cq_;
  attr.recv_cq = cq_;
  attr.qp_type = IBV_QPT_RC;
  attr.cap.max_send_wr = kEntries;
  attr.cap.max_recv_wr = kEntries;
  attr.cap.max_send_sge = 1;
  attr.cap.max_recv_sge = 1;
  if (const int error = api_.CreateQp(id_, pd, &attr); error != 0) {
    return DeviceError(device.FailedQueuePair(), error);
  }
  device_ = &device;
  device.queue_pairs.fetch_add(1, std::memory_order_relaxed);
  domain_ = std::move(domain);
  return absl::OkStatus();
}

ConnectionHandles CmId::handles() const {
  return {.domain = domain_->handle(),
          .queue_pair = id_->qp->handle,
          .completion_queue = cq_->handle,
          .fd = fd()};
}

ConnectionInfo CmId::Info() const {
  const rdma_addr& address = id_->route.addr;
  ConnectionInfo info;
  info.local_address = AddressText(address.src_storage);
  info.local_port = PortOf(address.src_storage);
  info.peer_address = AddressText(address.dst_storage);
  info.peer_port = PortOf(address.dst_storage);
  info.qp_num = qp_num();
  return info;
}

}  // namespace mrd::fabric::verbs
