#include "client/attach_handshake.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <span>
#include <utility>

#include "client/attach_socket.h"
#include "client/local_error.h"
#include "mrd/v1/status.h"
#include "mrd/v1/version.h"

namespace mrd::internal {
namespace {

using Clock = std::chrono::steady_clock;

// Waits for the next packet of the handshake.
absl::StatusOr<v1::DaemonPacket> AwaitPacket(int socket, const AttachParameters& parameters,
                                             int stop, Clock::time_point until) {
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
    pollfd fds[] = {{socket, POLLIN, 0}, {stop, POLLIN, 0}};  // poll(2) passes over -1.
    poll(fds, 2, static_cast<int>(std::min<int64_t>(left.count(), 1'000'000)));
    if (fds[1].revents != 0) return absl::CancelledError("attaching was given up");
  }
}

// A pidfd of this process, by which the daemon learns of its death where the kernel hides its pid.
UniqueFd OwnPidfd() { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))); }

absl::Status SayHello(int socket, const AttachParameters& parameters, const std::string& token) {
  v1::ClientPacket packet;
  packet.mutable_hello()->set_protocol_version(kProtocolVersion);
  packet.mutable_hello()->set_name(parameters.name);
  packet.mutable_hello()->set_token(token);
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

}  // namespace

absl::StatusOr<v1::AttachWelcome> Handshake(int socket, const AttachParameters& parameters,
                                            const std::string& token, int stop) {
  const auto until = Clock::now() + parameters.timeout;
  if (absl::Status hello = SayHello(socket, parameters, token); !hello.ok()) return hello;
  for (bool answered = false;;) {
    auto packet = AwaitPacket(socket, parameters, stop, until);
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

absl::StatusOr<Attached> AttachOnce(const AttachParameters& parameters) {
  auto socket = ConnectAttachSocket(parameters.path, parameters.admin, parameters.timeout);
  if (!socket.ok()) return socket.status();
  auto welcome = Handshake(socket->get(), parameters, /*token=*/"", /*stop=*/-1);
  if (!welcome.ok()) return welcome.status();
  return Attached{std::move(*socket), std::move(*welcome)};
}

}  // namespace mrd::internal
