#include "daemon/ipc/attach_connection.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/policy/text.h"
#include "daemon/ipc/end_connection.h"
#include "daemon/log.h"
#include "mrd/v1/status.h"
#include "mrd/v1/version.h"

namespace mrd::ipc {
namespace {

constexpr std::chrono::seconds kHandshake{5};
constexpr size_t kNameBytes = 64;
constexpr size_t kNonceBytes = 16;
constexpr size_t kIdsAPacket = 256;  // Of up to ten bytes.
constexpr size_t kMostMessageBytes = 512;
constexpr int kPacketsAtOnce = 64;    // Then other sources of the main loop have their turn.
constexpr int kPacketsADrain = 4096;  // More than the socket's buffer holds.

void ToProto(const broker::Progress& progress, v1::AttachEvent::Progress* message) {
  message->set_request_id(progress.request_id);
  message->set_bytes_total(progress.bytes_total);
  message->set_bytes_mapped(progress.bytes_mapped);
  message->set_bytes_pinned(progress.bytes_pinned);
  message->set_ranges_total(progress.ranges_total);
  message->set_ranges_pinned(progress.ranges_pinned);
}

}  // namespace

AttachConnection::AttachConnection(sd_event* loop, broker::Broker& broker, AttachOptions options,
                                   SparseWarnings& warnings, LostEvents& lost_events,
                                   UniqueFd socket, Peer peer, uint32_t user,
                                   std::function<void()> attached,
                                   std::function<void(AttachConnection*)> closed)
    : loop_(loop),
      broker_(broker),
      options_(options),
      warnings_(warnings),
      lost_events_(lost_events),
      disposer_(broker.disposer()),
      socket_(std::move(socket)),
      attached_(std::move(attached)),
      closed_(std::move(closed)),
      uid_(peer.uid),
      user_(user),
      peer_(std::move(peer)) {}

AttachConnection::~AttachConnection() { EndConnection(std::move(socket_), user_, disposer_); }

bool AttachConnection::Start() {
  // As soon as possible: credentials come only with packets sent after it is set.
  const int on = 1;
  setsockopt(socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on);
  readable_ = EventSource(loop_, socket_.get(), EPOLLIN | EPOLLRDHUP,
                          [this](uint32_t events) { OnReady(events); });
  too_late_ = EventSource(loop_, kHandshake, [this] {
    log::Write(spdlog::level::debug,
               absl::StrCat("attach: no hello within ", kHandshake.count(), " s"),
               log::Fields().Uid(uid_));
    Close();
  });
  return readable_ && too_late_;
}

void AttachConnection::Close(broker::SessionEnd how) {
  const auto self = shared_from_this();
  readable_.reset();
  death_.reset();
  too_late_.reset();
  broker::SessionRef session;
  {
    MutexLock lock(mutex_);
    session = std::move(session_);
    session_ = nullptr;
    if (broken_) how = broker::SessionEnd::kProtocol;
    shutdown(socket_.get(), SHUT_RDWR);
  }
  if (session) broker_.End(session, how);
  closed_(this);
}

void AttachConnection::OnReady(uint32_t) {
  bool standing;
  {
    MutexLock lock(mutex_);
    standing = ReceiveLocked(kPacketsAtOnce);
    if (standing && state_ == kAttached) {
      too_late_.reset();
      if (!death_ && peer_.pidfd) {
        death_ = EventSource(loop_, peer_.pidfd.get(), EPOLLIN,
                             [this](uint32_t) { Close(broker::SessionEnd::kPidfd); });
        standing = static_cast<bool>(death_);  // Else a fork could keep a dead session.
      }
    }
  }
  if (!standing) Close();
}

void AttachConnection::Drain() {
  MutexLock lock(mutex_);
  if (!session_) return;
  // The main loop sees the hang-up and ends the session.
  if (!ReceiveLocked(kPacketsADrain)) shutdown(socket_.get(), SHUT_RDWR);
}

bool AttachConnection::ReceiveLocked(int most) {
  for (int i = 0; i < most; ++i) {
    // Each of its connections could bring hundreds of descriptors more, until there is none left in
    // this process; then the kernel drops what comes, in this thread.
    if (disposer_.Stuck(user_)) {
      Warn("has too many descriptors that wait for a close that hangs");
      return false;
    }
    Packet packet;
    switch (Receive(socket_.get(), &packet)) {
      case Received::kNothing:
        return true;
      case Received::kHangUp:
        return false;
      case Received::kMalformed:
        Warn("sent a malformed packet, or this process has no descriptor left for what it sent");
        Dispose(packet);
        return false;
      case Received::kPacket:
        const bool orderly = Handle(packet);
        Dispose(packet);
        if (!orderly) return false;
    }
  }
  return true;
}

void AttachConnection::Warn(const std::string& what, v1::Reason reason) {
  broken_ = true;
  log::Fields fields;
  if (reason != v1::REASON_UNSPECIFIED) fields.Reason(v1::Reason_Name(reason));
  if (session_) fields.Session(session_->id);
  fields.Uid(uid_).Pid(peer_.pid);
  warnings_.Warn(user_,
                 absl::StrCat("attach: pid ", peer_.pid, " of uid ", uid_, " ", what,
                              session_ ? "; session " : "; it is hung up on",
                              session_ ? absl::StrCat(session_->id, " ends") : ""),
                 fields);
}

void AttachConnection::Dispose(Packet& packet) {
  for (UniqueFd& fd : packet.fds) {
    if (fd) disposer_.Close(user_, std::move(fd));
  }
  packet.fds.clear();
}

bool AttachConnection::Handle(Packet& packet) {
  v1::ClientPacket message;
  if (message.ParseFromString(packet.bytes)) {
    if (message.has_hello() && state_ == kHello) return HandleHello(message.hello(), packet);
    if (message.has_answer() && state_ == kChallenged)
      return HandleAnswer(message.answer(), packet);
    if (message.has_pass_buffers() && state_ == kAttached) {
      return HandleBuffers(message.pass_buffers(), packet);
    }
  }
  if (state_ == kAttached) {
    Warn("sent a packet that says nothing");
    return false;
  }
  return Refuse(MakeError(v1::REQUEST_INVALID, "this is not the packet that attaching needs",
                          {.advice = "Send AttachHello first, in the protocol of attach.proto"}));
}

bool AttachConnection::Refuse(const absl::Status& status) {
  v1::DaemonPacket packet;
  v1::AttachRefusal* refusal = packet.mutable_refusal();
  broker_.observer().Refused(ReasonOf(status));
  refusal->set_code(static_cast<int>(status.code()));
  refusal->set_message(std::string(status.message()));
  if (const auto detail = DetailOf(status)) refusal->set_detail(detail->SerializeAsString());
  ipc::Send(socket_.get(), packet.SerializeAsString());
  return false;
}

bool AttachConnection::HandleHello(const v1::AttachHello& hello, Packet& packet) {
  if (packet.fds.size() > 1) {
    return Refuse(MakeError(v1::REQUEST_INVALID, "AttachHello with several descriptors",
                            {.advice = "Send at most one, a pidfd"}));
  }
  if (hello.protocol_version() == 0) {
    return Refuse(
        MakeError(v1::UNSUPPORTED, "protocol version 0",
                  {.advice = absl::StrCat("This daemon speaks version ", kProtocolVersion)}));
  }
  if (hello.name().size() > kNameBytes || !policy::IsPrintable(hello.name())) {
    return Refuse(MakeError(v1::REQUEST_INVALID, "the session's name is too long or not printable",
                            {.limit_name = "bytes of a session's name",
                             .limit = kNameBytes,
                             .advice = "Use at most 64 bytes of printable UTF-8"}));
  }
  name_ = hello.name();
  token_ = hello.token();
  if (peer_.proven) return Admit();
  if (peer_.pid != 0) return Challenge();
  // Its pid is hidden: the descriptor that it gave tells of its death, if it is what it should be.
  if (!packet.fds.empty() && IsPidfd(packet.fds[0].get())) {
    peer_.pidfd = std::move(packet.fds[0]);
    clients_pidfd_ = true;
  }
  return Admit();
}

bool AttachConnection::Challenge() {
  nonce_.resize(kNonceBytes);
  if (getrandom(nonce_.data(), nonce_.size(), 0) != static_cast<ssize_t>(kNonceBytes)) return false;
  v1::DaemonPacket packet;
  packet.mutable_challenge()->set_nonce(nonce_);
  state_ = kChallenged;
  return ipc::Send(socket_.get(), packet.SerializeAsString());
}

bool AttachConnection::HandleAnswer(const v1::AttachAnswer& answer, const Packet& packet) {
  // The pidfd was opened by number after the connection was made: the process that connected may
  // have died, and another one may have its pid since. The kernel vouches for the sender's pid now;
  // if the pidfd's process lives still after that, it was the sender all the time in between.
  const bool answered =
      answer.nonce() == nonce_ && packet.credentials && packet.credentials->pid == peer_.pid &&
      packet.credentials->uid == peer_.uid && peer_.pidfd && !HasEnded(peer_.pidfd);
  if (!answered) {
    return Refuse(MakeError(v1::POLICY_DENIED,
                            "the challenge was not answered by the process that connected",
                            {.advice = "Attach and answer in one and the same process"}));
  }
  return Admit();
}

bool AttachConnection::Admit() {
  auto groups = GroupsOf(socket_.get());
  if (!groups) {
    Warn("is refused: it has too many supplementary groups");
    return Refuse(MakeError(v1::UNSUPPORTED, "a process with so many supplementary groups",
                            {.limit_name = "supplementary groups of a client",
                             .limit = kMostGroups,
                             .advice = absl::StrCat("Attach with at most ", kMostGroups)}));
  }
  broker::Identity identity;
  identity.pid = peer_.pid;
  identity.uid = peer_.uid;
  identity.gid = peer_.gid;
  identity.admin = options_.admin && peer_.uid != kOverflowUid;
  identity.groups = *std::move(groups);
  identity.cgroup = CgroupOf(peer_);
  if (peer_.pid != 0) {
    identity.comm = CommOf(peer_.pid);
    identity.start_time = StartTimeOf(peer_.pid);
  }
  UniqueFd command_line = OpenCommandLine(peer_.pid);
  // Its cgroup is not known any more, so neither is the rule that was meant for it; who holds the
  // socket now is somebody else.
  if (peer_.pidfd && HasEnded(peer_.pidfd)) return false;
  identity.death = !peer_.pidfd ? "hang-up" : clients_pidfd_ ? "pidfd of the client" : "pidfd";
  const bool resumes = !token_.empty();
  if (resumes) NoteLost();  // Before anybody sends events on this connection.
  auto session = resumes ? broker_.Resume(identity, token_, shared_from_this())
                         : broker_.Attach(std::move(identity), name_, shared_from_this());
  if (resumes && !session.ok()) return Refuse(session.status());
  if (!session.ok()) {
    Warn(absl::StrCat("is refused: ", session.status().message()), ReasonOf(session.status()));
    return Refuse(session.status());
  }
  session_ = *std::move(session);
  state_ = kAttached;
  was_attached_ = true;
  attached_();
  if (command_line) ReadLater(std::move(command_line));
  v1::DaemonPacket packet;
  v1::AttachWelcome* welcome = packet.mutable_welcome();
  welcome->set_protocol_version(kProtocolVersion);
  welcome->set_session_id(session_->id);
  welcome->set_token(session_->token);
  welcome->set_daemon_version(kVersion);
  welcome->set_fabric(broker_.fabric().name());
  welcome->set_resumed(resumes);
  if (options_.resume_within.count() > 0) {
    welcome->mutable_resume_within()->set_seconds(options_.resume_within.count());
  }
  v1::AttachLimits* limits = welcome->mutable_limits();
  limits->set_max_buffers_per_packet(kMostPacketFds);
  limits->set_max_buffers(std::min<uint64_t>(session_->terms()->limits.buffers, UINT32_MAX));
  limits->set_max_ranges_per_call(broker_.limits().ranges_per_call);
  limits->set_max_message_bytes(options_.max_message_bytes);
  broker_.session_log().Write(
      spdlog::level::debug, session_->id, session_->identity,
      absl::StrCat(
          resumes ? "session attached again: " : "session attached: ", session_->identity.comm,
          name_.empty() ? "" : ", named ", name_, options_.admin ? ", an admin" : ""));
  return Welcome(packet);
}

bool AttachConnection::Welcome(const v1::DaemonPacket& packet) {
  MutexLock lock(send_mutex_);
  welcomed_ = ipc::Send(socket_.get(), packet.SerializeAsString());
  if (welcomed_ && lost_) TellLostLocked();
  return welcomed_;
}

void AttachConnection::NoteLost() {
  MutexLock lock(send_mutex_);
  lost_ = true;
}

void AttachConnection::ReadLater(UniqueFd command_line) {
  const auto read = [session = std::weak_ptr<broker::Session>(session_)](int fd) {
    std::string text = ReadCommandLine(fd);
    if (const broker::SessionRef attached = session.lock()) {
      MutexLock lock(attached->mutex);
      attached->command_line = std::move(text);
    }
  };
  disposer_.Close(user_, std::move(command_line), read);
}

bool AttachConnection::HandleBuffers(const v1::PassBuffers& pass, Packet& packet) {
  if (pass.buffer_ids_size() == 0 ||
      static_cast<size_t>(pass.buffer_ids_size()) != packet.fds.size()) {
    Warn(absl::StrCat("sent ", pass.buffer_ids_size(), " buffer ids with ", packet.fds.size(),
                      " descriptors"));
    return false;
  }
  bool orderly = true;
  for (size_t i = 0; i < packet.fds.size() && orderly; ++i) {
    orderly = broker_.AddBuffer(*session_, pass.buffer_ids(static_cast<int>(i)),
                                std::move(packet.fds[i]));
  }
  if (!orderly) {
    Warn(absl::StrCat("passed a buffer under an id that is 0 or in use, or far more than ",
                      session_->terms()->limits.buffers, " buffers"));
  }
  return orderly;
}

void AttachConnection::Send(const broker::Event& event) {
  const size_t parts =
      std::max<size_t>(1, (event.lease_ids.size() + kIdsAPacket - 1) / kIdsAPacket);
  bool sent = true;
  MutexLock lock(send_mutex_);
  if (lost_) TellLostLocked();
  for (size_t part = 0; part < parts; ++part) {
    v1::DaemonPacket packet;
    v1::AttachEvent* message = packet.mutable_event();
    message->set_kind(event.kind);
    message->set_cause(event.cause);
    const auto ids = event.lease_ids.begin();
    message->mutable_lease_ids()->Add(
        ids + part * kIdsAPacket, ids + std::min((part + 1) * kIdsAPacket, event.lease_ids.size()));
    if (part == 0) {
      message->mutable_endpoint_ids()->Add(event.endpoint_ids.begin(), event.endpoint_ids.end());
    }
    message->set_device(event.device);
    message->set_generation(event.generation);
    message->set_message(event.message.substr(0, kMostMessageBytes));
    if (event.progress) ToProto(*event.progress, message->mutable_progress());
    sent &= SendLocked(packet);
  }
  if (sent || lost_) return;
  lost_ = true;
  lost_events_.Add(weak_from_this());
}

bool AttachConnection::SendLocked(v1::DaemonPacket& packet) {
  packet.mutable_event()->set_sequence(++sequence_);
  return welcomed_ && ipc::Send(socket_.get(), packet.SerializeAsString());
}

bool AttachConnection::TellLostLocked() {
  v1::DaemonPacket packet;
  packet.mutable_event()->set_kind(v1::AttachEvent::EVENTS_LOST);
  packet.mutable_event()->set_message("events were lost, since they were not read: list anew");
  if (SendLocked(packet)) lost_ = false;
  return !lost_;
}

bool AttachConnection::TellLost() {
  MutexLock lock(send_mutex_);
  return !lost_ || TellLostLocked();
}

void LostEvents::Add(std::weak_ptr<AttachConnection> connection) {
  MutexLock lock(mutex_);
  connections_.push_back(std::move(connection));
}

void LostEvents::Tell() {
  std::vector<std::weak_ptr<AttachConnection>> connections;
  {
    MutexLock lock(mutex_);
    connections.swap(connections_);
  }
  for (auto& each : connections) {
    const auto connection = each.lock();
    // Whoever hung up is told nothing, and goes with its connection.
    if (connection && !connection->TellLost()) Add(std::move(each));
  }
}

void AttachConnection::HangUp() { shutdown(socket_.get(), SHUT_RDWR); }

}  // namespace mrd::ipc
