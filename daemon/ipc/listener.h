// Accepts connections in the main loop.
#ifndef MRD_DAEMON_IPC_LISTENER_H_
#define MRD_DAEMON_IPC_LISTENER_H_

#include <functional>

#include "daemon/ipc/event.h"
#include "daemon/ipc/sparse_warnings.h"
#include "daemon/memory/disposer.h"
#include "daemon/unique_fd.h"

namespace mrd::ipc {

class Listener {
 public:
  // `socket` listens and does not block. Nobody waits for its close, which drops what connections
  // that were not accepted have sent.
  Listener(sd_event* loop, UniqueFd socket, memory::Disposer& disposer,
           std::function<void(UniqueFd)> accepted);
  ~Listener();

 private:
  void Accept();

  memory::Disposer disposer_;
  UniqueFd socket_;
  const std::function<void(UniqueFd)> accepted_;
  EventSource readable_;
  EventSource pause_;  // Runs while there are no descriptors left to accept with.
  SparseWarnings warnings_;
};

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_LISTENER_H_
