#include "tests/vm/dying/dying_api.h"

#include <string>
#include <utility>
#include <vector>

#include "tests/vm/dying/steps.h"

namespace dying {
namespace {

using namespace mrd::fabric::verbs;  // NOLINT: this is one of its parts.

// A context of before: what ends there, and what is registered there.
class DyingUverbs final : public Uverbs {
 public:
  explicit DyingUverbs(Uverbs& real) : real_(real) {}

  Result<HandleList> Handles(const UverbsContext& context, UverbsObject object) override {
    return real_.Handles(context, object);
  }
  Result<MrFacts> QueryMr(const UverbsContext& context, uint32_t handle) override {
    return real_.QueryMr(context, handle);
  }
  int Destroy(const UverbsContext& context, UverbsObject object, uint32_t handle) override {
    const Stepped stepped("the end of an adopted object");
    return real_.Destroy(context, object, handle);
  }
  Result<NewMr> RegMr(const UverbsContext& context, const MrWish& wish) override {
    const Stepped stepped("a registration in an adopted domain");
    return real_.RegMr(context, wish);
  }
  bool IsThere(const UverbsContext& context, const std::string& device) override {
    return real_.IsThere(context, device);
  }

 private:
  Uverbs& real_;
};

class DyingApi final : public Api {
 public:
  explicit DyingApi(std::unique_ptr<Api> real) : real_(std::move(real)), uverbs_(real_->uverbs()) {}

  // The first one opens contexts, a later one opens or closes some.
  Result<ibv_context**> GetDevices() override {
    const Stepped stepped("rdma_get_devices");
    return real_->GetDevices();
  }
  void FreeDevices(ibv_context** list) override { real_->FreeDevices(list); }
  Result<ibv_device**> GetDeviceList() override { return real_->GetDeviceList(); }
  void FreeDeviceList(ibv_device** list) override { real_->FreeDeviceList(list); }
  int DeviceIndex(ibv_device* device) override { return real_->DeviceIndex(device); }
  Result<ibv_context*> OpenDevice(ibv_device* device) override {
    const Stepped stepped("ibv_open_device");
    return real_->OpenDevice(device);
  }
  int CloseDevice(ibv_context* context) override {
    const Stepped stepped("ibv_close_device");
    return real_->CloseDevice(context);
  }
  void LetGo(ibv_context* context) override {
    const Stepped stepped("a context's end");
    real_->LetGo(context);
  }
  int QueryDevice(ibv_context* context, ibv_device_attr_ex* attr) override {
    return real_->QueryDevice(context, attr);
  }
  int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) override {
    return real_->QueryPort(context, port, attr);
  }
  Result<std::vector<ibv_gid_entry>> QueryGids(ibv_context* context) override {
    return real_->QueryGids(context);
  }
  int SetAsyncNonBlocking(ibv_context* context) override {
    return real_->SetAsyncNonBlocking(context);
  }
  Result<ibv_async_event> GetAsyncEvent(ibv_context* context) override {
    return real_->GetAsyncEvent(context);
  }
  void AckAsyncEvent(ibv_async_event* event) override { real_->AckAsyncEvent(event); }
  Result<uint32_t> DriverId(ibv_context* context) override { return real_->DriverId(context); }
  Uverbs& uverbs() override { return uverbs_; }

  Result<ibv_pd*> AllocPd(ibv_context* context) override {
    const Stepped stepped("ibv_alloc_pd");
    return real_->AllocPd(context);
  }
  int DeallocPd(ibv_pd* pd) override {
    const Stepped stepped("ibv_dealloc_pd");
    return real_->DeallocPd(pd);
  }
  Result<ibv_mr*> RegMr(ibv_pd* pd, void* va, uint64_t length, uint64_t iova, int access) override {
    const Stepped stepped("ibv_reg_mr_iova");
    return real_->RegMr(pd, va, length, iova, access);
  }
  Result<ibv_mr*> RegDmaBufMr(ibv_pd* pd, uint64_t offset, uint64_t length, uint64_t iova, int fd,
                              int access) override {
    const Stepped stepped("ibv_reg_dmabuf_mr");
    return real_->RegDmaBufMr(pd, offset, length, iova, fd, access);
  }
  int DeregMr(ibv_mr* mr) override {
    const Stepped stepped("ibv_dereg_mr");
    return real_->DeregMr(mr);
  }

  Result<ibv_cq*> CreateCq(ibv_context* context, int entries) override {
    const Stepped stepped("ibv_create_cq");
    return real_->CreateCq(context, entries);
  }
  int DestroyCq(ibv_cq* cq) override {
    const Stepped stepped("ibv_destroy_cq");
    return real_->DestroyCq(cq);
  }
  Result<rdma_event_channel*> CreateEventChannel() override {
    const Stepped stepped("rdma_create_event_channel");
    return real_->CreateEventChannel();
  }
  void DestroyEventChannel(rdma_event_channel* channel) override {
    const Stepped stepped("rdma_destroy_event_channel");
    real_->DestroyEventChannel(channel);
  }
  Result<rdma_cm_id*> CreateId(rdma_event_channel* channel) override {
    const Stepped stepped("rdma_create_id");
    return real_->CreateId(channel);
  }
  int DestroyId(rdma_cm_id* id) override {
    const Stepped stepped("rdma_destroy_id");
    return real_->DestroyId(id);
  }
  int MigrateId(rdma_cm_id* id, rdma_event_channel* channel) override {
    const Stepped stepped("rdma_migrate_id");
    return real_->MigrateId(id, channel);
  }
  int BindAddr(rdma_cm_id* id, sockaddr* address) override {
    const Stepped stepped("rdma_bind_addr");
    return real_->BindAddr(id, address);
  }
  int Listen(rdma_cm_id* id, int backlog) override {
    const Stepped stepped("rdma_listen");
    return real_->Listen(id, backlog);
  }
  int ResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* destination,
                  int timeout_ms) override {
    const Stepped stepped("rdma_resolve_addr");
    return real_->ResolveAddr(id, source, destination, timeout_ms);
  }
  int ResolveRoute(rdma_cm_id* id, int timeout_ms) override {
    const Stepped stepped("rdma_resolve_route");
    return real_->ResolveRoute(id, timeout_ms);
  }
  int CreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) override {
    const Stepped stepped("rdma_create_qp");
    return real_->CreateQp(id, pd, attr);
  }
  void DestroyQp(rdma_cm_id* id) override {
    const Stepped stepped("rdma_destroy_qp");
    real_->DestroyQp(id);
  }
  int Connect(rdma_cm_id* id, rdma_conn_param* param) override {
    const Stepped stepped("rdma_connect");
    return real_->Connect(id, param);
  }
  int Accept(rdma_cm_id* id, rdma_conn_param* param) override {
    const Stepped stepped("rdma_accept");
    return real_->Accept(id, param);
  }
  int Reject(rdma_cm_id* id) override {
    const Stepped stepped("rdma_reject");
    return real_->Reject(id);
  }
  int Disconnect(rdma_cm_id* id) override {
    const Stepped stepped("rdma_disconnect");
    return real_->Disconnect(id);
  }
  // One that is there is taken from the kernel.
  Result<rdma_cm_event*> GetCmEvent(rdma_event_channel* channel) override {
    auto event = real_->GetCmEvent(channel);
    if (event.ok()) Step("after", "rdma_get_cm_event");
    return event;
  }
  void AckCmEvent(rdma_cm_event* event) override { real_->AckCmEvent(event); }

  Result<int> OpenUevents() override { return real_->OpenUevents(); }
  Result<Uevent> ReadUevent() override { return real_->ReadUevent(); }
  uint64_t MemlockLimit() override { return real_->MemlockLimit(); }
  bool HasIpcLock() override { return real_->HasIpcLock(); }
  uint64_t PinnedBytes() override { return real_->PinnedBytes(); }
  std::vector<NetAddress> NetAddresses() override { return real_->NetAddresses(); }
  std::vector<uint32_t> PortInterfaces(ibv_context* context) override {
    return real_->PortInterfaces(context);
  }
  std::vector<std::string> ParentInterfaces(const std::string& device) override {
    return real_->ParentInterfaces(device);
  }

 private:
  const std::unique_ptr<Api> real_;
  DyingUverbs uverbs_;
};

}  // namespace

std::unique_ptr<mrd::fabric::verbs::Api> MakeDyingApi(
    std::unique_ptr<mrd::fabric::verbs::Api> real) {
  return std::make_unique<DyingApi>(std::move(real));
}

}  // namespace dying
