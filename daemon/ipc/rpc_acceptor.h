// Connections to the gRPC socket: accepted and counted here, served by whoever takes them.
#ifndef MRD_DAEMON_IPC_RPC_ACCEPTOR_H_
#define MRD_DAEMON_IPC_RPC_ACCEPTOR_H_

#include <sys/types.h>

#include <functional>
#include <unordered_map>

#include "daemon/broker/books.h"
#include "daemon/ipc/event.h"
#include "daemon/ipc/listener.h"
#include "daemon/ipc/sparse_warnings.h"

namespace mrd::ipc {

// Main thread.
class RpcAcceptor {
 public:
  // `serve` takes each connection, and shuts it down when it is done with it.
  RpcAcceptor(sd_event* loop, broker::Books& books, UniqueFd socket,
              std::function<void(UniqueFd)> serve);

 private:
  struct Connection {
    UniqueFd watched;  // A second descriptor of it: tells when it is over, whoever ended it.
    uid_t uid;
    EventSource over;
  };

  void Accept(UniqueFd connection);

  sd_event* const loop_;
  broker::Books& books_;
  const std::function<void(UniqueFd)> serve_;
  std::unordered_map<int, Connection> connections_;  // By watched descriptor.
  SparseWarnings warnings_;
  Listener listener_;
};

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_RPC_ACCEPTOR_H_
