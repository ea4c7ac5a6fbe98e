// What of the daemon's outlives it: the store, the ledger, and what the run before has left there.
#ifndef MRD_DAEMON_SURVIVAL_H_
#define MRD_DAEMON_SURVIVAL_H_

#include <systemd/sd-event.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/broker/adoption.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/ledger/ledger.h"
#include "daemon/host/fd_store.h"
#include "daemon/host/inherited.h"
#include "daemon/ipc/event.h"

namespace mrd {

// Outlives the broker.
class Survival {
 public:
  // `limit`: descriptors that the store takes; `fds`: what was in it. Null where it cannot be used,
  // which is logged: then `fds` are closed.
  static std::unique_ptr<Survival> Open(size_t limit, std::vector<host::InheritedFd> fds);

  // Above those of all openings that something is left of.
  uint64_t first_generation() const;
  // Before the broker is used. Whoever does not come back in time is ended from `loop` on.
  void Adopt(sd_event* loop, broker::Broker& broker);

 private:
  Survival(size_t limit, const std::vector<std::string>& names) : store_(limit, names) {}

  void Sweep();

  host::FdStore store_;
  broker::StoredFds fds_;
  std::unique_ptr<broker::ledger::Ledger> ledger_;
  broker::Broker* broker_ = nullptr;
  ipc::EventSource sweep_;
  // Shared with a sweep under way.
  struct Sweeping {
    std::atomic<bool> now = false;
    std::atomic<bool> over = false;  // There is nothing left to look at.
  };
  const std::shared_ptr<Sweeping> sweeping_ = std::make_shared<Sweeping>();
};

}  // namespace mrd

#endif  // MRD_DAEMON_SURVIVAL_H_
