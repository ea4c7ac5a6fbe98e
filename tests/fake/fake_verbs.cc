#include "tests/fake/fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "absl/strings/str_cat.h"

namespace mrd::fake {

using fabric::verbs::NetAddress;

FakeVerbs::FakeVerbs(const std::string& spec, std::unique_ptr<FakeKernel> kernel)
    : kernel_(std::move(kernel)),
      devices_(live_, kernel_.get()),
      cm_(devices_, live_),
      uverbs_(kernel_.get()) {
  for (const DeviceSpec& device : ParseSpec(spec)) devices_.Add(device);
}

FakeVerbs::~FakeVerbs() = default;

std::unique_ptr<FakeVerbs> FakeVerbs::FromEnvironment() {
  const char* spec = getenv("MRD_FAKE_VERBS");
  return std::make_unique<FakeVerbs>(spec != nullptr ? spec : "devices=fake0",
                                     FakeKernel::FromEnvironment());
}

FakeDevice& FakeVerbs::Find(const std::string& name) {
  if (FakeDevice* const device = devices_.Find(name)) return *device;
  fprintf(stderr, "fake verbs: no device %s\n", name.c_str());
  abort();
}

int FakeVerbs::BeginFirst(const char* call) {
  const auto devices = devices_.All();
  return devices.empty() ? 0 : devices[0]->Begin(call);
}

void FakeVerbs::Fail(const std::string& device, const std::string& call, const std::string& fault) {
  Find(device).SetFault(call, ParseFault(fault));
}

void FakeVerbs::Unplug(const std::string& device) { Find(device).Unplug(); }

void FakeVerbs::SetActive(const std::string& device, bool active) {
  Find(device).SetActive(active);
}

void FakeVerbs::SetPort(const std::string& name, bool active) {
  FakeDevice& device = Find(name);
  device.SetActive(active);
  PushAsync(device, active ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

void FakeVerbs::Fatal(const std::string& device) {
  PushAsync(Find(device), IBV_EVENT_DEVICE_FATAL);
}

void FakeVerbs::PushAsync(FakeDevice& device, ibv_event_type type) {
  ibv_async_event event = {};
  event.event_type = type;
  device.PushAsync(event);
}

void FakeVerbs::Remove(const std::string& name, bool tell_ids) {
  FakeDevice& device = Find(name);
  device.Remove();
  if (tell_ids) cm_.TellRemoval(device);
  uevents_.Push("remove", "uverbs" + std::to_string(device.index()));
}

void FakeVerbs::Add(const std::string& name) {
  const FakeDevice& device = devices_.Add(Find(name).spec());
  uevents_.Push("add", "uverbs" + std::to_string(device.index()));
}

bool FakeVerbs::RemovalWaits() const {
  for (FakeDevice* device : devices_.All()) {
    if (device->removed() && device->held()) return true;
  }
  return false;
}

uint64_t FakeVerbs::PortQueries(const std::string& device) { return Find(device).port_queries(); }

uint64_t FakeVerbs::AsyncReads(const std::string& device) { return Find(device).async_reads(); }

void FakeVerbs::SetMemlock(uint64_t limit, uint64_t pinned, bool ipc_lock) {
  memlock_limit_ = limit;
  pinned_ = pinned;
  ipc_lock_ = ipc_lock;
}

void FakeVerbs::FailQueuePairs() {
  cm_.ForEach([](rdma_cm_id* id) {
    if (id->qp == nullptr) return;
    ibv_async_event event = {};
    event.event_type = IBV_EVENT_QP_ACCESS_ERR;
    event.element.qp = id->qp;
    FakeDevice::Of(id->verbs).PushAsync(event);
  });
}

std::string FakeVerbs::Leaks() const {
  std::string leaks;
  const auto count = [&leaks](const char* what, int64_t live) {
    if (live != 0) absl::StrAppend(&leaks, live, " ", what, "; ");
  };
  count("contexts", live_.contexts);
  count("protection domains", live_.pds);
  count("regions", live_.mrs);
  count("completion queues", live_.cqs);
  count("queue pairs", live_.qps);
  count("ids", live_.ids);
  count("channels", live_.channels);
  count("unacknowledged events", live_.events);
  for (const std::string& violation : cm_.violations()) absl::StrAppend(&leaks, violation, "; ");
  return leaks;
}

Result<ibv_context**> FakeVerbs::GetDevices() {
  // As sync_devices_list of librdmacm: with no device it looks no further.
  if (devices_.Present().empty()) return {nullptr, ENODEV};
  for (FakeDevice* device : devices_.All()) {
    if (device->removed()) device->MissedByCm();
  }
  std::vector<ibv_context*> contexts;
  for (FakeDevice* device : devices_.Present()) {
    if (!device->spec().endpoints || device->Begin("open") != 0) continue;
    contexts.push_back(device->context());
  }
  if (contexts.empty()) return {nullptr, ENODEV};
  auto* list = new ibv_context*[contexts.size() + 1]();
  std::copy(contexts.begin(), contexts.end(), list);
  for (ibv_context* context : contexts) FakeDevice::Of(context).ListedByCm(true);
  live_.contexts += contexts.size();
  return {list, 0};
}

void FakeVerbs::FreeDevices(ibv_context** list) {
  for (ibv_context** it = list; *it != nullptr; ++it) {
    FakeDevice::Of(*it).ListedByCm(false);
    --live_.contexts;
  }
  delete[] list;
}

Result<ibv_device**> FakeVerbs::GetDeviceList() {
  if (const int error = device_list_error_; error != 0) return {nullptr, error};
  const auto devices = devices_.Present();
  auto* list = new ibv_device*[devices.size() + 1]();
  for (size_t i = 0; i < devices.size(); ++i) list[i] = devices[i]->device();
  return {list, 0};
}

void FakeVerbs::FreeDeviceList(ibv_device** list) { delete[] list; }

Result<ibv_context*> FakeVerbs::OpenDevice(ibv_device* opened) {
  for (FakeDevice* device : devices_.Present()) {
    if (device->device() != opened) continue;
    if (const int error = device->Begin("open"); error != 0) return {nullptr, error};
    device->Opened(true);
    ++live_.contexts;
    return {device->context(), 0};
  }
  return {nullptr, ENODEV};
}

int FakeVerbs::DeviceIndex(ibv_device* device) {
  for (FakeDevice* each : devices_.All()) {
    if (each->device() == device) return each->index();
  }
  return -1;
}

void FakeVerbs::LetGo(ibv_context* context) {
  if (const std::string wrong = FakeDevice::Of(context).LetGo(); !wrong.empty()) {
    cm_.Violation(wrong);
  }
}

int FakeVerbs::CloseDevice(ibv_context* context) {
  FakeDevice::Of(context).Opened(false);
  --live_.contexts;
  return 0;
}

int FakeVerbs::QueryDevice(ibv_context* context, ibv_device_attr_ex* attr) {
  const int error = FakeDevice::Of(context).Begin("query");
  if (error == 0) FakeDevice::Of(context).Query(attr);
  return error;
}

int FakeVerbs::QueryPort(ibv_context* context, uint8_t, ibv_port_attr* attr) {
  const int error = FakeDevice::Of(context).Begin("port");
  if (error == 0) FakeDevice::Of(context).QueryPort(attr);
  return error;
}

Result<std::vector<ibv_gid_entry>> FakeVerbs::QueryGids(ibv_context* context) {
  const DeviceSpec& spec = FakeDevice::Of(context).spec();
  std::vector<ibv_gid_entry> entries(2);
  // The first is what every RoCE port has: a link-local address.
  entries[0].gid.raw[0] = 0xfe;
  entries[0].gid.raw[1] = 0x80;
  in_addr address;
  if (inet_pton(AF_INET, spec.address.c_str(), &address) == 1) {
    entries[1].gid.raw[10] = entries[1].gid.raw[11] = 0xff;
    memcpy(&entries[1].gid.raw[12], &address, sizeof address);
  } else {
    inet_pton(AF_INET6, spec.address.c_str(), entries[1].gid.raw);
  }
  if (spec.transport != "roce") entries.resize(1);
  return {std::move(entries), 0};
}

int FakeVerbs::SetAsyncNonBlocking(ibv_context*) { return 0; }

Result<ibv_async_event> FakeVerbs::GetAsyncEvent(ibv_context* context) {
  ibv_async_event event = {};
  const int error = FakeDevice::Of(context).PopAsync(&event);
  if (error != 0) return {event, error};
  ++live_.events;
  return {event, 0};
}

void FakeVerbs::AckAsyncEvent(ibv_async_event*) { --live_.events; }

void FakeVerbs::KeepForNextRun() {
  keeps_ = true;
  for (FakeDevice* device : devices_.All()) {
    kept_.emplace_back(open("/dev/null", O_RDWR | O_CLOEXEC));
    device->context()->cmd_fd = kept_.back().get();
  }
}

Result<ibv_pd*> FakeVerbs::AllocPd(ibv_context* context) {
  Result<ibv_pd*> result;
  result.value = FakeDevice::Of(context).AllocPd(&result.error);
  if (keeps_ && result.ok()) {
    result.value->handle = uverbs_.NewHandle();
    uverbs_.Change(context->cmd_fd,
                   [pd = result.value](auto& kernel) { kernel.pds.insert(pd->handle); });
  }
  return result;
}

int FakeVerbs::DeallocPd(ibv_pd* pd) {
  ibv_context* const context = pd->context;
  const uint32_t handle = pd->handle;
  const int error = FakeDevice::Of(context).DeallocPd(pd);
  if (keeps_ && error == 0) {
    uverbs_.Change(context->cmd_fd, [handle](auto& kernel) { kernel.pds.erase(handle); });
  }
  return error;
}

Result<ibv_mr*> FakeVerbs::RegMr(ibv_pd* pd, void* va, uint64_t length, uint64_t iova, int access) {
  Result<ibv_mr*> result;
  result.value = FakeDevice::Of(pd->context).RegMr(pd, va, length, iova, access, &result.error);
  if (keeps_ && result.ok()) {
    ibv_mr& mr = *result.value;
    mr.handle = uverbs_.NewHandle();
    uverbs_.Change(pd->context->cmd_fd, [&](auto& kernel) {
      kernel.mrs[mr.handle] = {mr.lkey, mr.rkey, length, iova};
      kernel.pd_of[mr.handle] = pd->handle;
    });
  }
  return result;
}

Result<ibv_mr*> FakeVerbs::RegDmaBufMr(ibv_pd* pd, uint64_t, uint64_t length, uint64_t iova, int fd,
                                       int access) {
  if (!FakeDevice::Of(pd->context).spec().dma_buf) return {nullptr, EOPNOTSUPP};
  if (fd < 0) return {nullptr, EBADF};
  return RegMr(pd, nullptr, length, iova, access);
}

int FakeVerbs::DeregMr(ibv_mr* mr) {
  ibv_context* const context = mr->context;
  const uint32_t handle = mr->handle;
  const int error = FakeDevice::Of(context).DeregMr(mr);
  if (keeps_ && error == 0) {
    uverbs_.Change(context->cmd_fd, [handle](auto& kernel) {
      kernel.mrs.erase(handle);
      kernel.pd_of.erase(handle);
    });
  }
  return error;
}

Result<ibv_cq*> FakeVerbs::CreateCq(ibv_context* context, int) {
  Result<ibv_cq*> result;
  result.value = FakeDevice::Of(context).CreateCq(&result.error);
  return result;
}

int FakeVerbs::DestroyCq(ibv_cq* cq) { return FakeDevice::Of(cq->context).DestroyCq(cq); }

Result<rdma_event_channel*> FakeVerbs::CreateEventChannel() {
  if (const int error = BeginFirst("channel"); error != 0) return {nullptr, error};
  return {cm_.CreateChannel(), 0};
}

void FakeVerbs::DestroyEventChannel(rdma_event_channel* channel) { cm_.DestroyChannel(channel); }

Result<rdma_cm_id*> FakeVerbs::CreateId(rdma_event_channel* channel) {
  if (const int error = BeginFirst("id"); error != 0) return {nullptr, error};
  return {cm_.CreateId(channel), 0};
}

int FakeVerbs::DestroyId(rdma_cm_id* id) { return cm_.DestroyId(id); }

int FakeVerbs::MigrateId(rdma_cm_id* id, rdma_event_channel* channel) {
  if (const int error = BeginFirst("migrate"); error != 0) return error;
  return cm_.MigrateId(id, channel);
}

int FakeVerbs::BindAddr(rdma_cm_id* id, sockaddr* address) {
  if (const int error = BeginFirst("bind"); error != 0) return error;
  return cm_.BindAddr(id, address);
}

int FakeVerbs::Listen(rdma_cm_id* id, int) {
  if (const int error = BeginFirst("listen"); error != 0) return error;
  return cm_.Listen(id);
}

int FakeVerbs::ResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int) {
  if (const int error = BeginFirst("resolve_addr"); error != 0) return error;
  return cm_.ResolveAddr(id, source, destination);
}

int FakeVerbs::ResolveRoute(rdma_cm_id* id, int) {
  if (const int error = FakeDevice::Of(id->verbs).Begin("resolve_route"); error != 0) return error;
  return cm_.ResolveRoute(id);
}

int FakeVerbs::CreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) {
  // As librdmacm: the domain must be on the id's own context.
  if (id->qp != nullptr || id->verbs != pd->context) return EINVAL;
  int error = 0;
  id->qp = FakeDevice::Of(id->verbs).CreateQp(pd, *attr, &error);
  return error;
}

void FakeVerbs::DestroyQp(rdma_cm_id* id) {
  FakeDevice::Of(id->verbs).DestroyQp(id->qp);
  id->qp = nullptr;
}

int FakeVerbs::Connect(rdma_cm_id* id, rdma_conn_param* param) {
  if (const int error = FakeDevice::Of(id->verbs).Begin("connect"); error != 0) return error;
  return cm_.Connect(id, *param);
}

int FakeVerbs::Accept(rdma_cm_id* id, rdma_conn_param* param) {
  if (const int error = FakeDevice::Of(id->verbs).Begin("accept"); error != 0) return error;
  return cm_.Accept(id, *param);
}

int FakeVerbs::Reject(rdma_cm_id* id) { return cm_.Reject(id); }
int FakeVerbs::Disconnect(rdma_cm_id* id) { return cm_.Disconnect(id); }

Result<rdma_cm_event*> FakeVerbs::GetCmEvent(rdma_event_channel* channel) {
  rdma_cm_event* const event = cm_.GetEvent(channel);
  return {event, event != nullptr ? 0 : EAGAIN};
}

void FakeVerbs::AckCmEvent(rdma_cm_event* event) { cm_.AckEvent(event); }

std::vector<NetAddress> FakeVerbs::NetAddresses() {
  std::vector<NetAddress> addresses;
  for (FakeDevice* device : devices_.All()) {
    const uint32_t ifindex = device->index() + 1;
    addresses.push_back({ifindex, "net" + std::to_string(ifindex), device->spec().address});
  }
  return addresses;
}

std::vector<uint32_t> FakeVerbs::PortInterfaces(ibv_context* context) {
  const FakeDevice& device = FakeDevice::Of(context);
  if (device.spec().transport == "ib") return {};
  return {static_cast<uint32_t>(device.index() + 1)};
}

std::vector<std::string> FakeVerbs::ParentInterfaces(const std::string& name) {
  const FakeDevice* const device = devices_.Find(name);
  if (device == nullptr || device->spec().transport != "ib") return {};
  return {"net" + std::to_string(device->index() + 1)};
}

}  // namespace mrd::fake
