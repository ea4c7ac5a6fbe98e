// Runs the broker's lease clock in the main loop.
#ifndef MRD_DAEMON_IPC_LEASE_TIMER_H_
#define MRD_DAEMON_IPC_LEASE_TIMER_H_

#include "daemon/broker/broker.h"
#include "daemon/ipc/event.h"
#include "daemon/unique_fd.h"

namespace mrd::ipc {

// Main thread. Sleeps where no lease has a ttl.
class LeaseTimer {
 public:
  // Both outlive it. REQUIRES: no session is attached yet.
  LeaseTimer(sd_event* loop, broker::Broker& broker);
  LeaseTimer(const LeaseTimer&) = delete;
  LeaseTimer& operator=(const LeaseTimer&) = delete;

 private:
  void Run();

  broker::Broker& broker_;
  const UniqueFd wake_;  // An eventfd: any thread may have put in a lease that lapses first.
  EventSource woken_;
  EventSource timer_;
};

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_LEASE_TIMER_H_
