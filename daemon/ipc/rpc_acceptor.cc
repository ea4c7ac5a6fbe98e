#include "daemon/ipc/rpc_acceptor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/ipc/end_connection.h"
#include "daemon/ipc/peer.h"

namespace mrd::ipc {

RpcAcceptor::RpcAcceptor(sd_event* loop, broker::Broker& broker, bool peer_pidfd, UniqueFd socket,
                         Server server)
    : loop_(loop),
      broker_(broker),
      books_(broker.books()),
      disposer_(broker.disposer()),
      peer_pidfd_(peer_pidfd),
      server_(std::move(server)),
      listener_(loop, std::move(socket), disposer_,
                [this](UniqueFd fd) { Accept(std::move(fd)); }) {}

RpcAcceptor::~RpcAcceptor() {
  while (!connections_.empty()) End(connections_.begin()->first);
}

void RpcAcceptor::Accept(UniqueFd connection) {
  // Who it is is for counting only: who calls is told by each call's token.
  const auto peer = PeerOf(connection.get(), peer_pidfd_);
  if (!peer.ok()) return EndConnection(std::move(connection), kOverflowUid, disposer_);
  const uid_t peer_uid = peer->uid;
  // Admins attach before they call.
  broker::HolderRef holder =
      books_.Join(SubjectOf(*peer, connection.get(), broker_.HasAdmin(peer->pid, peer->uid)));
  const uint32_t user = holder->user();
  const auto refuse = [&](absl::string_view why) {
    warnings_->Warn(user,
                    absl::StrCat("a connection of uid ", peer_uid, " to mrd.sock is closed: ", why),
                    log::Fields().Uid(peer_uid));
    EndConnection(std::move(connection), user, disposer_);
  };
  if (disposer_.Stuck(user)) {
    return refuse("too many of its descriptors wait for a close that hangs");
  }
  if (!GroupsOf(connection.get())) return refuse("its process has too many supplementary groups");
  const broker::Amounts one{.connections = 1};
  if (auto booked = books_.Book(*holder, one); !booked.ok()) return refuse(booked.message());
  UniqueFd watched(fcntl(connection.get(), F_DUPFD_CLOEXEC, 0));
  if (!watched) {
    books_.Release(*holder, one);
    return refuse(absl::StrCat(strerror(errno), "; raise LimitNOFILE if this goes on"));
  }
  const int key = watched.get();
  Connection& entry = connections_[key];
  entry.watched = std::move(watched);
  entry.user = user;
  entry.holder = std::move(holder);
  // Without EPOLLIN: hang-ups only, of the peer or, by its shutdown(2), of gRPC. Told once: of
  // thousands that end together each would be looked at again with each of the others. The peer may
  // have closed its sending half only: gRPC lets go of it too.
  entry.over = EventSource(loop_, key, EPOLLRDHUP | EPOLLET, [this, key](uint32_t) { End(key); });
  // Else nobody would learn that it has ended.
  if (!entry.over) return End(key);
  server_.serve(
      std::move(connection), user, [warnings = warnings_, user, uid = peer_uid](const char* what) {
        warnings->Warn(user,
                       absl::StrCat("a connection of uid ", uid, " to mrd.sock is ended: ", what),
                       log::Fields().Uid(uid));
      });
}

void RpcAcceptor::End(int watched) {
  const auto found = connections_.find(watched);
  UniqueFd connection = std::move(found->second.watched);
  const uid_t user = found->second.user;
  const broker::HolderRef holder = std::move(found->second.holder);
  connections_.erase(found);
  books_.Release(*holder, {.connections = 1});
  server_.ended(connection.get());
  EndConnection(std::move(connection), user, disposer_, Readers::kOthers);
}

void RpcAcceptor::EndAll() {
  for (const auto& [fd, connection] : connections_) shutdown(fd, SHUT_RDWR);
}

}  // namespace mrd::ipc
