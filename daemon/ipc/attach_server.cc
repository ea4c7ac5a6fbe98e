#include "daemon/ipc/attach_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/ipc/end_connection.h"

namespace mrd::ipc {

AttachServer::AttachServer(sd_event* loop, broker::Broker& broker, AttachOptions options,
                           UniqueFd socket)
    : loop_(loop),
      broker_(broker),
      options_(options),
      listener_(loop, std::move(socket), broker.disposer(),
                [this](UniqueFd fd) { Accept(std::move(fd)); }) {}

AttachServer::~AttachServer() {
  while (!connections_.empty()) {
    const auto connection = connections_.begin()->second;
    connection->Close();
  }
}

void AttachServer::Accept(UniqueFd socket) {
  auto peer = PeerOf(socket.get(), options_.peer_pidfd);
  if (!peer.ok()) {
    warnings_.Warn(kOverflowUid,
                   absl::StrCat("attach: a connection is closed: ", peer.status().message()));
    return EndConnection(std::move(socket), kOverflowUid, broker_.disposer());
  }
  // As the session's will be, if it does not move to another cgroup before its hello.
  const uint32_t user =
      broker_.books().policy()->Find(SubjectOf(*peer, socket.get(), options_.admin)).user;
  if (broker_.disposer().Stuck(user)) {
    warnings_.Warn(user,
                   absl::StrCat("attach: a connection of uid ", peer->uid,
                                " is closed: ", memory::Disposer::kMostWaiting,
                                " of its descriptors wait for a close that hangs"),
                   log::Fields().Uid(peer->uid));
    return EndConnection(std::move(socket), user, broker_.disposer());
  }
  // Those with a session are bounded by the books, by a limit that a rule may raise: beyond what is
  // built in only those are let in that keep few others waiting.
  const auto known = by_user_.find(user);
  const Count count = known == by_user_.end() ? Count() : known->second;
  const broker::Limits& limits = broker_.limits();
  if (count.all >= limits.sessions + limits.unattached && count.waiting >= limits.unattached) {
    warnings_.Warn(user,
                   absl::StrCat("attach: a connection of uid ", peer->uid, " is closed: it has ",
                                count.all, " already"),
                   log::Fields().Uid(peer->uid));
    return EndConnection(std::move(socket), user, broker_.disposer());
  }
  Count& counted = by_user_[user];
  ++counted.all;
  ++counted.waiting;
  auto connection = std::make_shared<AttachConnection>(
      loop_, broker_, options_, warnings_, lost_events_, std::move(socket), *std::move(peer), user,
      [this, user] { --by_user_.find(user)->second.waiting; },
      [this](AttachConnection* closed) {
        const auto entry = by_user_.find(closed->user());
        entry->second.waiting -= !closed->attached();
        if (--entry->second.all == 0) by_user_.erase(entry);
        connections_.erase(closed);
      });
  connections_.emplace(connection.get(), connection);
  if (!connection->Start()) connection->Close();
}

}  // namespace mrd::ipc
