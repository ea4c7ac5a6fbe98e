// The rdma_cm of the fake host: ids of this process that connect with each other.
#ifndef MRD_TESTS_FAKE_FAKE_CM_H_
#define MRD_TESTS_FAKE_FAKE_CM_H_

#include <rdma/rdma_cma.h>

#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/mutex.h"
#include "tests/fake/device_table.h"

namespace mrd::fake {

// Thread safety: any thread.
class FakeCm {
 public:
  FakeCm(const DeviceTable& devices, Live& live) : devices_(devices), live_(live) {}
  ~FakeCm();
  FakeCm(const FakeCm&) = delete;
  FakeCm& operator=(const FakeCm&) = delete;

  rdma_event_channel* CreateChannel();
  void DestroyChannel(rdma_event_channel* channel) MRD_EXCLUDES(mutex_);
  rdma_cm_id* CreateId(rdma_event_channel* channel) MRD_EXCLUDES(mutex_);
  int DestroyId(rdma_cm_id* id) MRD_EXCLUDES(mutex_);
  int MigrateId(rdma_cm_id* id, rdma_event_channel* channel) MRD_EXCLUDES(mutex_);
  int BindAddr(rdma_cm_id* id, const sockaddr* address) MRD_EXCLUDES(mutex_);
  int Listen(rdma_cm_id* id) MRD_EXCLUDES(mutex_);
  int ResolveAddr(rdma_cm_id* id, const sockaddr* source, const sockaddr* destination)
      MRD_EXCLUDES(mutex_);
  int ResolveRoute(rdma_cm_id* id) MRD_EXCLUDES(mutex_);
  int Connect(rdma_cm_id* id, const rdma_conn_param& param) MRD_EXCLUDES(mutex_);
  int Accept(rdma_cm_id* id, const rdma_conn_param& param) MRD_EXCLUDES(mutex_);
  int Reject(rdma_cm_id* id) MRD_EXCLUDES(mutex_);
  int Disconnect(rdma_cm_id* id) MRD_EXCLUDES(mutex_);
  rdma_cm_event* GetEvent(rdma_event_channel* channel) MRD_EXCLUDES(mutex_);
  void AckEvent(rdma_cm_event* event) MRD_EXCLUDES(mutex_);

  // Calls `inject` with every live id.
  void ForEach(const std::function<void(rdma_cm_id* id)>& inject) MRD_EXCLUDES(mutex_);
  void Inject(rdma_cm_id* id, rdma_cm_event_type type, int status) MRD_EXCLUDES(mutex_);
  // Tells every id on this device that it is being removed.
  void TellRemoval(const FakeDevice& device) MRD_EXCLUDES(mutex_);
  void Violation(const std::string& what) MRD_EXCLUDES(mutex_);
  // An acceptance is not told to the accepting side, as when the peer's last packet is lost; false:
  // what was held is told now. On iWARP the kernel lets nobody disconnect or destroy an id before
  // it was told or the peer has gone: here for kKernelWait at most.
  static constexpr std::chrono::seconds kKernelWait{3};
  void HoldEstablished(bool hold) MRD_EXCLUDES(mutex_);
  // What callers did that would hang or crash with the real library.
  std::vector<std::string> violations() const MRD_EXCLUDES(mutex_);

 private:
  struct Id;
  struct Event;
  struct Channel;

  static Id& Of(rdma_cm_id* id);
  static Channel& Of(rdma_event_channel* channel);

  void Push(Id& id, rdma_cm_event_type type, int status, const std::string& data = "",
            Id* new_id = nullptr) MRD_REQUIRES(mutex_);
  void Forget(Id& id) MRD_REQUIRES(mutex_);
  void WaitForHandshake(Id& id) MRD_REQUIRES(mutex_);
  FakeDevice* DeviceAt(const sockaddr_storage& address) const;
  uint16_t FreePort() MRD_REQUIRES(mutex_);

  const DeviceTable& devices_;
  Live& live_;
  mutable Mutex mutex_;
  CondVar handshake_ended_;
  std::set<Id*> ids_ MRD_GUARDED_BY(mutex_);
  uint16_t last_port_ MRD_GUARDED_BY(mutex_) = 40000;
  bool hold_established_ MRD_GUARDED_BY(mutex_) = false;
  std::vector<std::string> violations_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::fake

#endif  // MRD_TESTS_FAKE_FAKE_CM_H_
