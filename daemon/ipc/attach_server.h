// The attach sockets' connections.
#ifndef MRD_DAEMON_IPC_ATTACH_SERVER_H_
#define MRD_DAEMON_IPC_ATTACH_SERVER_H_

#include <memory>
#include <unordered_map>

#include "daemon/ipc/attach_connection.h"
#include "daemon/ipc/listener.h"
#include "daemon/ipc/sparse_warnings.h"

namespace mrd::ipc {

// Main thread.
class AttachServer {
 public:
  // `socket` listens; `loop` and `broker` outlive it.
  AttachServer(sd_event* loop, broker::Broker& broker, AttachOptions options, UniqueFd socket);
  // Ends every connection. REQUIRES: their sessions have ended.
  ~AttachServer();
  AttachServer(const AttachServer&) = delete;
  AttachServer& operator=(const AttachServer&) = delete;

  // To be called about every second.
  void Sweep() { lost_events_.Tell(); }

 private:
  struct Count {
    size_t all = 0;
    size_t waiting = 0;  // Without a session yet.
  };

  void Accept(UniqueFd connection);

  sd_event* const loop_;
  broker::Broker& broker_;
  const AttachOptions options_;
  std::unordered_map<AttachConnection*, std::shared_ptr<AttachConnection>> connections_;
  std::unordered_map<uint32_t, Count> by_user_;
  SparseWarnings warnings_;
  LostEvents lost_events_;
  Listener listener_;
};

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_ATTACH_SERVER_H_
