#include "tests/fake/fake_device.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

namespace mrd::fake {
namespace {

struct FakePd : ibv_pd {
  std::atomic<int> users = 0;
};
struct FakeCq : ibv_cq {
  std::atomic<int> users = 0;
};

using fabric::verbs::UverbsObject;

FakePd& Pd(ibv_pd* pd) { return *static_cast<FakePd*>(pd); }
FakeCq& Cq(ibv_cq* cq) { return *static_cast<FakeCq*>(cq); }

// Spread over 32 bits, and a permutation of them: no two live keys are alike.
uint32_t Key(uint32_t number) { return number * 0x9E3779B1u; }

}  // namespace

FakeDevice::FakeDevice(DeviceSpec spec, int index, Live& live, FakeKernel* kernel)
    : spec_(std::move(spec)),
      index_(index),
      live_(live),
      kernel_(kernel),
      context_fd_(kernel != nullptr ? kernel->Open() : UniqueFd()),
      plain_(spec_.calls.empty()),
      active_(spec_.active) {
  for (const auto& [name, call] : spec_.calls) calls_[name].spec = call;
  device_.node_type = spec_.transport == "iwarp" ? IBV_NODE_RNIC : IBV_NODE_CA;
  device_.transport_type = spec_.transport == "iwarp" ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
  strncpy(device_.name, spec_.name.c_str(), sizeof device_.name - 1);
  context_.device = this;
  context_.ibv_context::device = &device_;
  context_.cmd_fd = context_fd_.get();
  context_.async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
}

FakeDevice::~FakeDevice() {
  if (context_.async_fd >= 0) close(context_.async_fd);
}

uint32_t FakeDevice::MakeInKernel(UverbsObject type, uint32_t pd, fabric::verbs::MrFacts facts) {
  if (kernel_ == nullptr) return 0;
  return kernel_->Make(FakeKernel::ContextOf(context_fd_.get()), type, pd, facts);
}

void FakeDevice::EndInKernel(uint32_t handle) {
  if (kernel_ != nullptr) kernel_->End(handle);
}

void FakeDevice::SetFault(const std::string& call, Fault fault) {
  MutexLock lock(mutex_);
  Counted& counted = calls_[call];
  counted.spec.fault = fault;
  counted.calls = 0;
  plain_.store(false, std::memory_order_release);
}

void FakeDevice::Unplug() {
  MutexLock lock(mutex_);
  unplugged_ = true;
  plain_.store(false, std::memory_order_release);
  eventfd_write(context_.async_fd, 1);  // Readable from now on.
}

bool FakeDevice::unplugged() {
  MutexLock lock(mutex_);
  return unplugged_;
}

void FakeDevice::Remove() {
  MutexLock lock(mutex_);
  removed_ = true;
  CloseUnheld();
}

// Descriptors of the process are counted by tests.
void FakeDevice::CloseUnheld() {
  if (!removed_ || cm_open_ || opened_ > 0 || context_.async_fd < 0) return;
  close(context_.async_fd);
  context_.async_fd = -1;
}

bool FakeDevice::held() {
  MutexLock lock(mutex_);
  return cm_open_ || opened_ > 0;
}

void FakeDevice::ListedByCm(bool list) {
  MutexLock lock(mutex_);
  lists_ += list ? 1 : -1;
  if (list && !let_go_) cm_open_ = true;
  if (lists_ == 0 && missed_) cm_open_ = false;
  CloseUnheld();
}

void FakeDevice::MissedByCm() {
  MutexLock lock(mutex_);
  missed_ = true;
  if (lists_ == 0) cm_open_ = false;
  CloseUnheld();
}

void FakeDevice::Opened(bool open) {
  MutexLock lock(mutex_);
  opened_ += open ? 1 : -1;
  CloseUnheld();
}

std::string FakeDevice::LetGo() {
  MutexLock lock(mutex_);
  cm_open_ = false;
  let_go_ = true;
  CloseUnheld();
  if (lists_ == 0) return "a context was let go of after its last list was freed";
  if (pds_ != 0 || mrs_ != 0 || qps_ != 0)
    return "a context was let go of with objects alive on it";
  return "";
}

int FakeDevice::BeginSlow(const std::string& call) {
  uint64_t delay_ms = 0;
  int error = 0;
  {
    MutexLock lock(mutex_);
    if (unplugged_) return EIO;
    const auto it = calls_.find(call);
    if (it == calls_.end()) return 0;
    Counted& counted = it->second;
    ++counted.calls;
    delay_ms = counted.spec.delay_ms;
    const Fault& fault = counted.spec.fault;
    if (fault.once ? counted.calls == fault.first : counted.calls >= fault.first) {
      error = fault.error;
    }
  }
  if (delay_ms != 0) std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms));
  return error;
}

void FakeDevice::Query(ibv_device_attr_ex* attr) const {
  const bool iwarp = spec_.transport == "iwarp";
  ibv_device_attr& basic = attr->orig_attr;
  basic.vendor_id = iwarp ? 0x626d74 : 0xffffff;  // siw's and rxe's.
  basic.phys_port_cnt = 1;
  basic.max_mr_size = spec_.max_mr_size;
  basic.max_mr = spec_.max_mr;
  basic.max_pd = spec_.max_pd;
  basic.max_qp = spec_.max_qp;
  const bool atomics = spec_.atomics < 0 ? !iwarp : spec_.atomics != 0;
  basic.atomic_cap = atomics ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE;
  if (spec_.odp) attr->odp_caps.general_caps = IBV_ODP_SUPPORT;
}

void FakeDevice::QueryPort(ibv_port_attr* attr) {
  ++port_queries_;
  attr->state = active_ ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr->link_layer = spec_.transport == "ib" ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
}

ibv_pd* FakeDevice::AllocPd(int* error) {
  if ((*error = Begin("pd")) != 0) return nullptr;
  if (pds_.fetch_add(1) >= spec_.max_pd) {
    pds_.fetch_sub(1);
    *error = ENOMEM;
    return nullptr;
  }
  ++live_.pds;
  auto* pd = new FakePd();
  pd->context = &context_;
  pd->handle = MakeInKernel(UverbsObject::kPd);
  return pd;
}

int FakeDevice::DeallocPd(ibv_pd* pd) {
  const int error = Begin("pd_free");
  if (error != 0 && error != EIO && error != ENODEV) return error;  // See DeregMr.
  if (Pd(pd).users.load() != 0) return EBUSY;
  EndInKernel(pd->handle);
  delete &Pd(pd);
  pds_.fetch_sub(1);
  --live_.pds;
  return error;
}

ibv_mr* FakeDevice::RegMr(ibv_pd* pd, void* va, uint64_t length, uint64_t iova, int access,
                          int* error) {
  if ((*error = Begin("reg")) != 0) return nullptr;
  constexpr int kNeedsLocalWrite = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if (length == 0 || ((access & kNeedsLocalWrite) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0)) {
    *error = EINVAL;
    return nullptr;
  }
  if (mrs_.fetch_add(1, std::memory_order_relaxed) >= spec_.max_mr) {
    mrs_.fetch_sub(1, std::memory_order_relaxed);
    *error = ENOMEM;
    return nullptr;
  }
  auto* mr = new ibv_mr();
  mr->context = &context_;
  mr->pd = pd;
  mr->addr = spec_.transport == "iwarp" ? va : reinterpret_cast<void*>(iova);
  mr->length = length;
  if (kernel_ == nullptr) {
    mr->lkey = mr->rkey = Key(next_key_.fetch_add(1, std::memory_order_relaxed));
  } else {
    mr->handle = MakeInKernel(UverbsObject::kMr, pd->handle, {.length = length, .iova = iova});
    mr->lkey = mr->rkey = FakeKernel::KeyOf(mr->handle);
  }
  Pd(pd).users.fetch_add(1, std::memory_order_relaxed);
  live_.mrs.fetch_add(1, std::memory_order_relaxed);
  return mr;
}

int FakeDevice::DeregMr(ibv_mr* mr) {
  // A device that is gone has ended its regions, whatever it answers.
  const int error = Begin("dereg");
  if (error != 0 && !unplugged()) return error;
  EndInKernel(mr->handle);
  Pd(mr->pd).users.fetch_sub(1, std::memory_order_relaxed);
  mrs_.fetch_sub(1, std::memory_order_relaxed);
  live_.mrs.fetch_sub(1, std::memory_order_relaxed);
  delete mr;
  return error;
}

ibv_cq* FakeDevice::CreateCq(int* error) {
  if ((*error = Begin("cq")) != 0) return nullptr;
  ++live_.cqs;
  auto* cq = new FakeCq();
  cq->context = &context_;
  cq->handle = MakeInKernel(UverbsObject::kCq);
  return cq;
}

int FakeDevice::DestroyCq(ibv_cq* cq) {
  if (Cq(cq).users.load() != 0) return EBUSY;
  --live_.cqs;
  EndInKernel(cq->handle);
  delete &Cq(cq);
  return 0;
}

ibv_qp* FakeDevice::CreateQp(ibv_pd* pd, const ibv_qp_init_attr& attr, int* error) {
  if ((*error = Begin("qp")) != 0) return nullptr;
  if (qps_.fetch_add(1) >= spec_.max_qp) {
    qps_.fetch_sub(1);
    *error = ENOMEM;
    return nullptr;
  }
  ++live_.qps;
  auto* qp = new ibv_qp();
  qp->context = &context_;
  qp->pd = pd;
  qp->send_cq = attr.send_cq;
  qp->recv_cq = attr.recv_cq;
  qp->qp_num = next_qp_.fetch_add(1);
  qp->handle = MakeInKernel(UverbsObject::kQp, pd->handle);
  ++Pd(pd).users;
  ++Cq(attr.send_cq).users;
  ++Cq(attr.recv_cq).users;
  return qp;
}

int FakeDevice::DestroyQp(ibv_qp* qp) {
  --Pd(qp->pd).users;
  --Cq(qp->send_cq).users;
  --Cq(qp->recv_cq).users;
  qps_.fetch_sub(1);
  --live_.qps;
  EndInKernel(qp->handle);
  delete qp;
  return 0;
}

void FakeDevice::PushAsync(ibv_async_event event) {
  MutexLock lock(mutex_);
  async_.push_back(event);
  eventfd_write(context_.async_fd, 1);
}

int FakeDevice::PopAsync(ibv_async_event* event) {
  MutexLock lock(mutex_);
  ++async_reads_;
  if (async_.empty()) return unplugged_ ? EIO : EAGAIN;
  *event = async_.front();
  async_.pop_front();
  eventfd_t one;
  eventfd_read(context_.async_fd, &one);
  return 0;
}

uint64_t FakeDevice::async_reads() {
  MutexLock lock(mutex_);
  return async_reads_;
}

}  // namespace mrd::fake
