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
  const uid_t uid = peer->uid;
  if (broker_.disposer().Stuck(uid)) {
    warnings_.Warn(uid,
                   absl::StrCat("attach: a connection of uid ", uid,
                                " is closed: ", memory::Disposer::kMostWaiting,
                                " of its descriptors wait for a close that hangs"),
                   log::Fields().Uid(uid));
    return EndConnection(std::move(socket), uid, broker_.disposer());
  }
  // Those with a session are bounded by the books, by a limit that a rule may raise: beyond what is
  // built in only those are let in that keep few others waiting.
  const auto known = by_uid_.find(uid);
  const Count count = known == by_uid_.end() ? Count() : known->second;
  const broker::Limits& limits = broker_.limits();
  if (count.all >= limits.sessions + limits.unattached && count.waiting >= limits.unattached) {
    warnings_.Warn(uid,
                   absl::StrCat("attach: a connection of uid ", uid, " is closed: it has ",
                                count.all, " already"),
                   log::Fields().Uid(uid));
    return EndConnection(std::move(socket), uid, broker_.disposer());
  }
  Count& counted = by_uid_[uid];
  ++counted.all;
  ++counted.waiting;
  auto connection = std::make_shared<AttachConnection>(
      loop_, broker_, options_, warnings_, lost_events_, std::move(socket), *std::move(peer),
      [this, uid] { --by_uid_.find(uid)->second.waiting; },
      [this](AttachConnection* closed) {
        const auto entry = by_uid_.find(closed->uid());
        entry->second.waiting -= !closed->attached();
        if (--entry->second.all == 0) by_uid_.erase(entry);
        connections_.erase(closed);
      });
  connections_.emplace(connection.get(), connection);
  if (!connection->Start()) connection->Close();
}

}  // namespace mrd::ipc
