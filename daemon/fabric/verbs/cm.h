// What all endpoints of the verbs fabric share: the thread that reads their events, and those that
// block for them.
#ifndef MRD_DAEMON_FABRIC_VERBS_CM_H_
#define MRD_DAEMON_FABRIC_VERBS_CM_H_

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "daemon/fabric/event_loop.h"
#include "daemon/fabric/verbs/api.h"
#include "daemon/fabric/verbs/cm_id.h"
#include "daemon/fabric/verbs/devices.h"
#include "daemon/fabric/verbs/workers.h"

namespace mrd::fabric::verbs {

class Cm {
 public:
  Cm(Api& api, Devices& devices);
  ~Cm();
  Cm(const Cm&) = delete;
  Cm& operator=(const Cm&) = delete;

  Api& api() { return api_; }
  Devices& devices() { return devices_; }
  EventLoop& loop() { return loop_; }

  // Runs what may block for minutes (rdma_connect).
  void Connecting(Workers::Function function) { connecting_.Post(std::move(function)); }
  // Runs what may block for seconds (the end of an id).
  void Ending(Workers::Function function) { ending_.Post(std::move(function)); }

  // Ends `id` on a thread that may block, lets go of what was held for it, and calls `then` there.
  void End(std::unique_ptr<CmId> id, std::shared_ptr<void> held, Workers::Function then);

  // Loop thread only. The same for an id whose handshake is under way: it was accepted or has asked
  // to connect, and its channel has not told what came of it. On iWARP the kernel lets nobody end
  // such an id (iw_cm_disconnect and iw_destroy_cm_id wait until the handshake is over, without a
  // time limit: siw_accept arms no timer for a peer that asked for a ready-to-receive frame and
  // then sends none). So there `then` is called at once, and the id ends when the kernel has told;
  // no thread waits for a peer, however many peers are silent. `held` bounds how many there are.
  void EndHandshake(std::unique_ptr<CmId> id, std::shared_ptr<void> held, Workers::Function then);

  // Reads the device's asynchronous events from now on. Any thread.
  void Watch(const std::shared_ptr<Device>& device);
  // The device was given up: reads no more of them, and ends what is being made on it. Any thread.
  void Forget(const std::shared_ptr<Device>& device);
  // See Fabric::Watch. When it returns, the one before is not running and not called again.
  void SetChanged(std::function<void()> changed);

  // Loop thread only. A device may have come or gone, as an id was told or shows.
  void Changed();
  // Loop thread only. The kernel removes this context's device. DEVICE_REMOVED.
  absl::Status Removing(const ibv_context* context);

  // Loop thread only. `gone` is called with each device that is given up, until it is dropped.
  uint64_t OnGone(std::function<void(const Device&)> gone);
  void DropGone(uint64_t id) { on_gone_.erase(id); }

  // Loop thread only. `failed` is called when the queue pair goes to the error state by itself (a
  // peer used a wrong key, say), which rdma_cm does not tell. Until it is unwatched, which comes
  // before its end.
  void WatchQp(ibv_qp* qp, std::function<void()> failed) { failed_[qp] = std::move(failed); }
  void UnwatchQp(ibv_qp* qp) { failed_.erase(qp); }

 private:
  struct Unfinished {
    std::unique_ptr<CmId> id;
    std::shared_ptr<void> held;
    EventLoop::WatchId watch;
  };

  void ReadAsyncEvents(const std::shared_ptr<Device>& device);
  void OnAsyncEvent(Device& device, const ibv_async_event& event);

  Api& api_;
  Devices& devices_;
  std::unordered_map<ibv_qp*, std::function<void()>> failed_;
  std::unordered_map<const Device*, EventLoop::WatchId> watches_;  // Of asynchronous events.
  std::function<void()> changed_;
  std::map<uint64_t, std::function<void(const Device&)>> on_gone_;
  uint64_t next_on_gone_ = 1;
  // The loop thread's own. Before the loop and the workers, which add to it until they end.
  std::list<Unfinished> unfinished_;
  // In this order: what the workers run posts to the loop, and what the loop runs posts to those
  // that end ids.
  Workers ending_;
  EventLoop loop_;
  Workers connecting_;
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_CM_H_
