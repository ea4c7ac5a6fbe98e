// Connections to the gRPC socket: accepted and counted here, served by whoever takes them.
#ifndef MRD_DAEMON_IPC_RPC_ACCEPTOR_H_
#define MRD_DAEMON_IPC_RPC_ACCEPTOR_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <unordered_map>

#include "daemon/broker/broker.h"
#include "daemon/ipc/event.h"
#include "daemon/ipc/listener.h"
#include "daemon/ipc/sparse_warnings.h"

namespace mrd::ipc {

// Main thread.
class RpcAcceptor {
 public:
  // Who serves connections: as service::Server has it.
  struct Server {
    std::function<void(UniqueFd connection, uint32_t user,
                       std::function<void(const char*)> on_abuse)>
        serve;
    std::function<void(int connection)> ended;
  };

  // `peer_pidfd`: use SO_PEERPIDFD where the kernel has it. `broker` outlives it.
  RpcAcceptor(sd_event* loop, broker::Broker& broker, bool peer_pidfd, UniqueFd socket,
              Server server);
  ~RpcAcceptor();

  // Shuts down all connections, also those whose peers do not read what was sent to them. What was
  // sent they can still read.
  void EndAll();

 private:
  struct Connection {
    // A second descriptor of it: tells when it is over, whoever ended it. Until that has been seen
    // to, gRPC's close of its own drops nothing that waits.
    UniqueFd watched;
    uint32_t user;
    broker::HolderRef holder;
    EventSource over;
  };

  void Accept(UniqueFd connection);
  void End(int watched);

  sd_event* const loop_;
  broker::Broker& broker_;
  broker::Books& books_;
  memory::Disposer& disposer_;
  const bool peer_pidfd_;
  const Server server_;
  std::unordered_map<int, Connection> connections_;  // By watched descriptor.
  // Shared with what tells of a connection, which may do so until the process ends.
  const std::shared_ptr<SparseWarnings> warnings_ = std::make_shared<SparseWarnings>();
  Listener listener_;
};

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_RPC_ACCEPTOR_H_
