#include "daemon/ipc/rpc_acceptor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace mrd::ipc {

RpcAcceptor::RpcAcceptor(sd_event* loop, broker::Books& books, UniqueFd socket, Server server)
    : loop_(loop),
      books_(books),
      server_(std::move(server)),
      listener_(loop, std::move(socket), [this](UniqueFd fd) { Accept(std::move(fd)); }) {}

void RpcAcceptor::Accept(UniqueFd connection) {
  // The uid is for counting only: who calls is told by each call's token.
  ucred peer;
  socklen_t length = sizeof peer;
  if (getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0) return;
  const broker::Amounts one{.connections = 1};
  if (auto booked = books_.Book(peer.uid, one); !booked.ok()) {
    warnings_->Warn(peer.uid, absl::StrCat("a connection of uid ", peer.uid,
                                           " to mrd.sock is closed: ", booked.message()));
    return;
  }
  UniqueFd watched(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  if (!watched) {
    warnings_->Warn(peer.uid, absl::StrCat("a connection of uid ", peer.uid,
                                           " to mrd.sock is closed: ", strerror(errno),
                                           "; raise LimitNOFILE if this goes on"));
    books_.Release(peer.uid, one);
    return;
  }
  const int key = watched.get();
  Connection& entry = connections_[key];
  entry.watched = std::move(watched);
  entry.uid = peer.uid;
  // Without EPOLLIN: hang-ups only, of the peer or, by its shutdown(2), of gRPC. Told once: of
  // thousands that end together each would be looked at again with each of the others.
  entry.over = EventSource(loop_, key, EPOLLRDHUP | EPOLLET, [this, key, one](uint32_t) {
    // The peer may have closed its sending half only: gRPC lets go of it too.
    shutdown(key, SHUT_RDWR);
    server_.ended(key);
    books_.Release(connections_.at(key).uid, one);
    connections_.erase(key);
  });
  if (!entry.over) {  // Nobody would learn that it has ended.
    connections_.erase(key);
    books_.Release(peer.uid, one);
    return;
  }
  server_.serve(
      std::move(connection), peer.uid, [warnings = warnings_, uid = peer.uid](const char* what) {
        warnings->Warn(uid,
                       absl::StrCat("a connection of uid ", uid, " to mrd.sock is ended: ", what));
      });
}

void RpcAcceptor::EndAll() {
  for (const auto& [fd, connection] : connections_) shutdown(fd, SHUT_RDWR);
}

}  // namespace mrd::ipc
