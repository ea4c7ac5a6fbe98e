// A device of the fake host: its attributes, its faults, and what lives on it.
#ifndef MRD_TESTS_FAKE_FAKE_DEVICE_H_
#define MRD_TESTS_FAKE_FAKE_DEVICE_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "daemon/mutex.h"
#include "tests/fake/fake_kernel.h"
#include "tests/fake/spec.h"

namespace mrd::fake {

// Live objects of all devices.
struct Live {
  std::atomic<int64_t> contexts = 0;
  std::atomic<int64_t> pds = 0;
  std::atomic<int64_t> mrs = 0;
  std::atomic<int64_t> cqs = 0;
  std::atomic<int64_t> qps = 0;
  std::atomic<int64_t> ids = 0;
  std::atomic<int64_t> channels = 0;
  std::atomic<int64_t> events = 0;  // Given out and not acknowledged.
};

class FakeDevice {
 public:
  // `kernel`: where what is made on it is known to later processes too; null: nowhere.
  FakeDevice(DeviceSpec spec, int index, Live& live, FakeKernel* kernel);
  ~FakeDevice();
  FakeDevice(const FakeDevice&) = delete;
  FakeDevice& operator=(const FakeDevice&) = delete;

  static FakeDevice& Of(ibv_context* context) {
    return *static_cast<FakeContext*>(context)->device;
  }

  const DeviceSpec& spec() const { return spec_; }
  int index() const { return index_; }
  ibv_device* device() { return &device_; }
  ibv_context* context() { return &context_; }

  // Sleeps and fails as the spec says; 0: go on. Costs one load where neither is set.
  int Begin(const char* call) {
    return plain_.load(std::memory_order_acquire) ? 0 : BeginSlow(call);
  }
  // Replaces the fault of `call`; counting starts anew.
  void SetFault(const std::string& call, Fault fault);
  // All calls fail with EIO from now on, as on a device that was unplugged.
  void Unplug() MRD_EXCLUDES(mutex_);
  bool unplugged() MRD_EXCLUDES(mutex_);

  // As 'rdma link delete' of a driver without disassociation: no list has it any more, contexts
  // work on, and the kernel waits until their descriptors are closed.
  void Remove() MRD_EXCLUDES(mutex_);
  bool removed() const { return removed_; }
  // Whether a descriptor of it is open.
  bool held() MRD_EXCLUDES(mutex_);
  // librdmacm's own counting of its one context a device. `list`: one is made or freed.
  void ListedByCm(bool list) MRD_EXCLUDES(mutex_);
  // librdmacm sees that a device is missing.
  void MissedByCm() MRD_EXCLUDES(mutex_);
  void Opened(bool open) MRD_EXCLUDES(mutex_);
  // Empty: it was right to let go of it now.
  std::string LetGo() MRD_EXCLUDES(mutex_);

  void Query(ibv_device_attr_ex* attr) const;
  void QueryPort(ibv_port_attr* attr);
  // Whether its port is up from now on.
  void SetActive(bool active) { active_ = active; }
  uint64_t port_queries() const { return port_queries_; }

  ibv_pd* AllocPd(int* error);
  int DeallocPd(ibv_pd* pd);
  ibv_mr* RegMr(ibv_pd* pd, void* va, uint64_t length, uint64_t iova, int access, int* error);
  int DeregMr(ibv_mr* mr);
  ibv_cq* CreateCq(int* error);
  int DestroyCq(ibv_cq* cq);
  ibv_qp* CreateQp(ibv_pd* pd, const ibv_qp_init_attr& attr, int* error);
  int DestroyQp(ibv_qp* qp);

  void PushAsync(ibv_async_event event) MRD_EXCLUDES(mutex_);
  int PopAsync(ibv_async_event* event) MRD_EXCLUDES(mutex_);
  uint64_t async_reads() MRD_EXCLUDES(mutex_);

 private:
  struct FakeContext : ibv_context {
    FakeDevice* device = nullptr;
  };
  struct Counted {
    CallSpec spec;
    uint64_t calls = 0;
  };

  // The object's handle. 0 without a kernel.
  uint32_t MakeInKernel(fabric::verbs::UverbsObject type, uint32_t pd = 0,
                        fabric::verbs::MrFacts facts = {});
  void EndInKernel(uint32_t handle);
  void CloseUnheld() MRD_REQUIRES(mutex_);
  int BeginSlow(const std::string& call) MRD_EXCLUDES(mutex_);

  const DeviceSpec spec_;
  const int index_;
  Live& live_;
  FakeKernel* const kernel_;
  const UniqueFd context_fd_;  // The kernel's.
  ibv_device device_ = {};
  FakeContext context_ = {};
  std::atomic<bool> plain_;
  std::atomic<bool> active_;
  std::atomic<bool> removed_ = false;
  std::atomic<uint64_t> port_queries_ = 0;
  std::atomic<uint32_t> next_key_ = 1;
  std::atomic<uint32_t> next_qp_ = 100;
  std::atomic<uint64_t> mrs_ = 0;
  std::atomic<uint64_t> pds_ = 0;
  std::atomic<uint64_t> qps_ = 0;
  Mutex mutex_;
  bool unplugged_ MRD_GUARDED_BY(mutex_) = false;
  std::map<std::string, Counted> calls_ MRD_GUARDED_BY(mutex_);
  std::deque<ibv_async_event> async_ MRD_GUARDED_BY(mutex_);
  uint64_t async_reads_ MRD_GUARDED_BY(mutex_) = 0;
  int lists_ MRD_GUARDED_BY(mutex_) = 0;   // Of librdmacm's that have it.
  int opened_ MRD_GUARDED_BY(mutex_) = 0;  // By ibv_open_device.
  bool let_go_ MRD_GUARDED_BY(mutex_) = false;
  bool missed_ MRD_GUARDED_BY(mutex_) = false;
  bool cm_open_ MRD_GUARDED_BY(mutex_) = false;  // librdmacm's descriptor.
};

}  // namespace mrd::fake

#endif  // MRD_TESTS_FAKE_FAKE_DEVICE_H_
