// A host with RDMA devices that are not there: the verbs fabric's Api for tests and benchmarks, and
// for daemons that tests start. Any call can fail with any errno or take any time; endpoints of the
// process connect with each other; what is alive is counted. spec.h says how to describe a host.
//
// Without faults and delays a registration costs tens of nanoseconds, so that what is measured is
// the daemon.
#ifndef MRD_TESTS_FAKE_FAKE_VERBS_H_
#define MRD_TESTS_FAKE_FAKE_VERBS_H_

#include <errno.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "daemon/fabric/verbs/api.h"
#include "daemon/mutex.h"
#include "daemon/unique_fd.h"
#include "tests/fake/fake_cm.h"
#include "tests/fake/fake_device.h"
#include "tests/fake/fake_kernel.h"
#include "tests/fake/fake_uevents.h"
#include "tests/fake/fake_uverbs.h"
#include "tests/fake/spec.h"

namespace mrd::fake {

using fabric::verbs::Result;

// Thread safety: any thread, as the Api's.
class FakeVerbs final : public fabric::verbs::Api {
 public:
  // `kernel`: where what is made outlives this; null: nowhere.
  explicit FakeVerbs(const std::string& spec = "devices=fake0",
                     std::unique_ptr<FakeKernel> kernel = nullptr);
  // From the environment variable MRD_FAKE_VERBS; one device fake0 when it is not set. With the
  // FakeKernel of the environment.
  static std::unique_ptr<FakeVerbs> FromEnvironment();
  ~FakeVerbs() override;

  // `call` as in spec.h; `fault` as "EIO", "EIO@5", "EIO@5+". Counts from now.
  void Fail(const std::string& device, const std::string& call, const std::string& fault);
  void Unplug(const std::string& device);
  // Whether its port is up from now on.
  void SetActive(const std::string& device, bool active);
  // The same, and the asynchronous event that tells of it.
  void SetPort(const std::string& device, bool active);
  void Fatal(const std::string& device);  // IBV_EVENT_DEVICE_FATAL
  // See FakeDevice::Remove. There is a uevent; `tell_ids`: and a CM event for each id on it.
  void Remove(const std::string& device, bool tell_ids = true);
  // A device as the last one of that name was.
  void Add(const std::string& device);
  // Whether the removal of a device still waits for descriptors to be closed.
  bool RemovalWaits() const;
  FakeUevents& uevents() { return uevents_; }
  // ibv_get_device_list fails from now on; 0: no more.
  void FailDeviceList(int error) { device_list_error_ = error; }
  // How often somebody asked for the state of its port.
  uint64_t PortQueries(const std::string& device);
  // How often somebody asked for asynchronous events.
  uint64_t AsyncReads(const std::string& device);
  // What the next errors of registrations are explained with.
  void SetMemlock(uint64_t limit, uint64_t pinned, bool ipc_lock);

  // From now on domains and regions are in uverbs() too, in contexts by their own descriptors, as a
  // process that comes after this one finds them. Before any is made.
  void KeepForNextRun();
  // Whether openings of devices survive their process from now on; at first they do not.
  void SetKeepable(bool keepable) { keepable_ = keepable; }

  FakeCm& cm() { return cm_; }
  // The queue pair of every id with one goes to the error state, as when its peer uses a wrong key.
  void FailQueuePairs();

  const Live& live() const { return live_; }
  // Empty when nothing is alive and no rule of the library was broken; else it says what.
  std::string Leaks() const;

  Result<ibv_context**> GetDevices() override;
  void FreeDevices(ibv_context** list) override;
  Result<ibv_device**> GetDeviceList() override;
  int DeviceIndex(ibv_device* device) override;
  void LetGo(ibv_context* context) override;
  Result<int> OpenUevents() override { return uevents_.Open(); }
  Result<fabric::verbs::Uevent> ReadUevent() override { return uevents_.Read(); }
  void FreeDeviceList(ibv_device** list) override;
  Result<ibv_context*> OpenDevice(ibv_device* device) override;
  int CloseDevice(ibv_context* context) override;
  int QueryDevice(ibv_context* context, ibv_device_attr_ex* attr) override;
  int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr) override;
  Result<std::vector<ibv_gid_entry>> QueryGids(ibv_context* context) override;
  int SetAsyncNonBlocking(ibv_context* context) override;
  Result<ibv_async_event> GetAsyncEvent(ibv_context* context) override;
  void AckAsyncEvent(ibv_async_event* event) override;
  Result<ibv_pd*> AllocPd(ibv_context* context) override;
  int DeallocPd(ibv_pd* pd) override;
  Result<ibv_mr*> RegMr(ibv_pd* pd, void* va, uint64_t length, uint64_t iova, int access) override;
  Result<ibv_mr*> RegDmaBufMr(ibv_pd* pd, uint64_t offset, uint64_t length, uint64_t iova, int fd,
                              int access) override;
  int DeregMr(ibv_mr* mr) override;
  Result<ibv_cq*> CreateCq(ibv_context* context, int entries) override;
  int DestroyCq(ibv_cq* cq) override;
  Result<rdma_event_channel*> CreateEventChannel() override;
  void DestroyEventChannel(rdma_event_channel* channel) override;
  Result<rdma_cm_id*> CreateId(rdma_event_channel* channel) override;
  int DestroyId(rdma_cm_id* id) override;
  int MigrateId(rdma_cm_id* id, rdma_event_channel* channel) override;
  int BindAddr(rdma_cm_id* id, sockaddr* address) override;
  int Listen(rdma_cm_id* id, int backlog) override;
  int ResolveAddr(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int timeout_ms) override;
  int ResolveRoute(rdma_cm_id* id, int timeout_ms) override;
  int CreateQp(rdma_cm_id* id, ibv_pd* pd, ibv_qp_init_attr* attr) override;
  void DestroyQp(rdma_cm_id* id) override;
  int Connect(rdma_cm_id* id, rdma_conn_param* param) override;
  int Accept(rdma_cm_id* id, rdma_conn_param* param) override;
  int Reject(rdma_cm_id* id) override;
  int Disconnect(rdma_cm_id* id) override;
  Result<rdma_cm_event*> GetCmEvent(rdma_event_channel* channel) override;
  void AckCmEvent(rdma_cm_event* event) override;
  // Without a kernel what it makes does not survive, unless it is kept.
  Result<uint32_t> DriverId(ibv_context*) override {
    if (!keeps_ && !kernel_ && !keepable_) return {0, EOPNOTSUPP};
    return {FakeUverbs::kDriver, 0};
  }
  FakeUverbs& uverbs() override { return uverbs_; }
  uint64_t MemlockLimit() override { return memlock_limit_; }
  bool HasIpcLock() override { return ipc_lock_; }
  uint64_t PinnedBytes() override { return pinned_; }
  std::vector<fabric::verbs::NetAddress> NetAddresses() override;
  std::vector<uint32_t> PortInterfaces(ibv_context* context) override;
  std::vector<std::string> ParentInterfaces(const std::string& device) override;

 private:
  FakeDevice& Find(const std::string& name);
  static void PushAsync(FakeDevice& device, ibv_event_type type);
  // For calls made before a device is known.
  int BeginFirst(const char* call);

  const std::unique_ptr<FakeKernel> kernel_;
  Live live_;
  DeviceTable devices_;
  FakeUevents uevents_;
  std::atomic<int> device_list_error_ = 0;
  FakeCm cm_;
  std::atomic<uint64_t> memlock_limit_ = UINT64_MAX;
  std::atomic<uint64_t> pinned_ = 0;
  std::atomic<bool> ipc_lock_ = true;
  std::atomic<bool> keepable_ = false;
  FakeUverbs uverbs_;
  bool keeps_ = false;
  std::vector<UniqueFd> kept_;  // Stand for contexts.
};

}  // namespace mrd::fake

#endif  // MRD_TESTS_FAKE_FAKE_VERBS_H_
