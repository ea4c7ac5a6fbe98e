#include "client/attach_connection.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "client/attach_socket.h"
#include "client/local_error.h"
#include "mrd/v1/status.h"
#include "mrd/v1/version.h"

namespace mrd::internal {

// What the reader thread needs. Shared, since a callback may destroy the connection that it came
// from: then the thread outlives it by a moment.
struct AttachConnection::Shared {
  AttachParameters parameters;
  std::shared_ptr<SessionState> state;
  UniqueFd socket;
  UniqueFd wake;  // An eventfd: the reader shall end.

  void ReadEvents();
  absl::Status LostError(const std::string& how) const;
};

namespace {

using Clock = std::chrono::steady_clock;

// Waits for the next packet of the handshake.
absl::StatusOr<v1::DaemonPacket> AwaitPacket(int socket, const AttachParameters& parameters,
                                             Clock::time_point until) {
  for (;;) {
    v1::DaemonPacket packet;
    switch (ReceivePacket(socket, &packet)) {
      case Received::kPacket:
        return packet;
      case Received::kHangUp:
        return LocalError(
            absl::StatusCode::kUnavailable,
            "cannot attach over " + parameters.path + ": the daemon hung up without an answer", 0,
            "Its log says why; it may have been ending.");
      case Received::kMalformed:
        return LocalError(absl::StatusCode::kUnavailable,
                          "cannot attach over " + parameters.path +
                              ": the answer is not one of the attach protocol",
                          0,
                          "Another program listens there, or a daemon of another version: "
                          "MRD_SOCKET_DIR must name the directory of mrd.");
      case Received::kNothing:
        break;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) {
      return LocalError(absl::StatusCode::kDeadlineExceeded,
                        "cannot attach over " + parameters.path + ": no answer within " +
                            std::to_string(parameters.timeout.count()) + " ms",
                        0, "The daemon is overloaded or stuck; see its log.");
    }
    pollfd poll_fd = {socket, POLLIN, 0};
    poll(&poll_fd, 1, static_cast<int>(std::min<int64_t>(left.count(), 1'000'000)));
  }
}

// A pidfd of this process, by which the daemon learns of its death where the kernel hides its pid.
UniqueFd OwnPidfd() { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))); }

absl::Status SayHello(int socket, const AttachParameters& parameters) {
  v1::ClientPacket packet;
  packet.mutable_hello()->set_protocol_version(kProtocolVersion);
  packet.mutable_hello()->set_name(parameters.name);
  const UniqueFd pidfd = OwnPidfd();
  const int fds[] = {pidfd.get()};
  // A daemon that refuses at once (connections per uid) may have hung up already, its reason
  // waiting to be read: EPIPE is not the answer then.
  const int error =
      SendPacket(socket, packet, pidfd.valid() ? std::span(fds) : std::span<const int>());
  if (error == 0 || error == EPIPE || error == ECONNRESET) return absl::OkStatus();
  return LocalError(absl::StatusCode::kUnavailable, "cannot attach over " + parameters.path, error,
                    "");
}

absl::Status RefusalError(const v1::AttachRefusal& refusal) {
  // A code outside absl's enum would become UNKNOWN on reading; OK would be no error at all.
  const auto code = refusal.code() == 0 ? absl::StatusCode::kUnknown
                                        : static_cast<absl::StatusCode>(refusal.code());
  absl::Status status(code, "the daemon refused the session: " + refusal.message());
  v1::ErrorDetail detail;
  if (refusal.detail().empty() || !detail.ParseFromString(refusal.detail())) return status;
  return WithDetail(status, detail);
}

absl::StatusOr<v1::AttachWelcome> Handshake(int socket, const AttachParameters& parameters) {
  const auto until = Clock::now() + parameters.timeout;
  if (absl::Status hello = SayHello(socket, parameters); !hello.ok()) return hello;
  for (bool answered = false;;) {
    auto packet = AwaitPacket(socket, parameters, until);
    if (!packet.ok()) return packet.status();
    if (packet->has_challenge() && !answered) {
      v1::ClientPacket answer;
      answer.mutable_answer()->set_nonce(packet->challenge().nonce());
      const int error = SendPacketWithCredentials(socket, answer);
      if (error != 0 && error != EPIPE && error != ECONNRESET) {
        return LocalError(absl::StatusCode::kUnavailable, "cannot attach over " + parameters.path,
                          error, "");
      }
      answered = true;
      continue;
    }
    if (packet->has_refusal()) return RefusalError(packet->refusal());
    if (packet->has_welcome() && packet->welcome().token().size() == 16) {
      return std::move(*packet->mutable_welcome());
    }
    return LocalError(absl::StatusCode::kUnavailable,
                      "cannot attach over " + parameters.path +
                          ": the daemon's answer is out of order or incomplete",
                      0, "A daemon of another version listens there.");
  }
}

}  // namespace

absl::Status AttachConnection::Shared::LostError(const std::string& how) const {
  ErrorFacts facts;
  facts.advice =
      "Its regions and keys are gone. Attach anew and register again, if the daemon has ended when "
      "it "
      "is back; its log says why the session ended.";
  return MakeError(v1::SESSION_UNKNOWN,
                   "the session has ended: the daemon at " + parameters.path + " " + how, facts);
}

void AttachConnection::Shared::ReadEvents() {
  for (;;) {
    pollfd fds[] = {{socket.get(), POLLIN, 0}, {wake.get(), POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;  // EINTR; no other error is possible with valid arguments.
    if (fds[1].revents != 0) return;
    v1::DaemonPacket packet;
    const Received received = ReceivePacket(socket.get(), &packet);
    if (received == Received::kNothing) continue;
    if (received == Received::kPacket) {
      if (packet.has_event() && parameters.on_event) parameters.on_event(packet.event());
      continue;
    }
    const absl::Status why = LostError(received == Received::kHangUp
                                           ? "hung up"
                                           : "sent a packet that is not of the attach protocol");
    // A daemon that talks nonsense keeps no session of ours.
    shutdown(socket.get(), SHUT_RDWR);
    state->End(why);
    if (parameters.on_lost) parameters.on_lost(why);
    return;
  }
}

AttachConnection::AttachConnection(std::shared_ptr<Shared> shared, v1::AttachWelcome welcome)
    : shared_(std::move(shared)), welcome_(std::move(welcome)) {
  // The process's signal handlers are not to run on a thread that it knows nothing of.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  reader_ = std::thread([shared = shared_] { shared->ReadEvents(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

absl::StatusOr<std::unique_ptr<AttachConnection>> AttachConnection::Attach(
    AttachParameters parameters, std::shared_ptr<SessionState> state) {
  auto socket = ConnectAttachSocket(parameters.path, parameters.admin, parameters.timeout);
  if (!socket.ok()) return socket.status();
  auto welcome = Handshake(socket->get(), parameters);
  if (!welcome.ok()) return welcome.status();
  auto shared = std::make_shared<Shared>();
  shared->parameters = std::move(parameters);
  shared->state = std::move(state);
  shared->socket = std::move(*socket);
  shared->wake = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!shared->wake.valid()) {
    return LocalError(absl::StatusCode::kResourceExhausted, "cannot make an eventfd", errno,
                      "Raise the limit of open files (ulimit -n) of this process.");
  }
  return std::unique_ptr<AttachConnection>(
      new AttachConnection(std::move(shared), std::move(*welcome)));
}

AttachConnection::~AttachConnection() {
  HangUp();
  if (reader_.get_id() == std::this_thread::get_id()) {
    reader_.detach();
  } else {
    reader_.join();
  }
}

void AttachConnection::HangUp() {
  shared_->state->End(MakeError(v1::SESSION_UNKNOWN, "the session was detached by this process",
                                {.advice = "Attach anew."}));
  eventfd_write(shared_->wake.get(), 1);
  // Not close: a forked child's copy of the descriptor would keep the connection.
  shutdown(shared_->socket.get(), SHUT_RDWR);
}

absl::Status AttachConnection::PassBuffers(std::span<const uint64_t> ids, std::span<const int> fds,
                                           size_t* passed) {
  const size_t most = std::max<size_t>(welcome_.limits().max_buffers_per_packet(), 1);
  *passed = 0;
  MutexLock lock(&send_mutex_);
  for (size_t first = 0; first < ids.size(); first += most) {
    const size_t count = std::min(most, ids.size() - first);
    v1::ClientPacket packet;
    packet.mutable_pass_buffers()->mutable_buffer_ids()->Add(ids.begin() + first,
                                                             ids.begin() + first + count);
    const int error = SendPacket(shared_->socket.get(), packet, fds.subspan(first, count));
    if (error == 0) {
      *passed += count;
      continue;
    }
    if (error == EPIPE || error == ECONNRESET) {
      shared_->state->End(shared_->LostError("hung up"));
      return shared_->state->Check();
    }
    if (error == EAGAIN) {
      return LocalError(absl::StatusCode::kDeadlineExceeded,
                        "cannot pass a buffer: the daemon did not read its attach socket", error,
                        "It is overloaded or stuck; see its log.");
    }
    return LocalError(absl::StatusCode::kResourceExhausted, "cannot pass a buffer to the daemon",
                      error,
                      error == ETOOMANYREFS
                          ? "Too many descriptors are under way (RLIMIT_NOFILE): register fewer "
                            "buffers at a time, or raise ulimit -n."
                          : "");
  }
  return absl::OkStatus();
}

}  // namespace mrd::internal
