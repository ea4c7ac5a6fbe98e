#include "client/attach_socket.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <vector>

#include "client/connect_error.h"
#include "client/local_error.h"

namespace mrd::internal {
namespace {

// sendmsg of `payload` with one control message; `control_bytes` 0: with none.
int Send(int socket, const std::string& payload, int control_type, const void* control,
         size_t control_bytes) {
  iovec iov = {const_cast<char*>(payload.data()), payload.size()};
  msghdr message = {};
  message.msg_iov = &iov;
  message.msg_iovlen = 1;
  // Zeroed and aligned as CMSG_FIRSTHDR needs it; operator new aligns for any header.
  std::vector<char> buffer(control_bytes ? CMSG_SPACE(control_bytes) : 0);
  if (control_bytes > 0) {
    message.msg_control = buffer.data();
    message.msg_controllen = buffer.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = control_type;
    header->cmsg_len = CMSG_LEN(control_bytes);
    memcpy(CMSG_DATA(header), control, control_bytes);
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? errno : 0;
}

}  // namespace

absl::StatusOr<UniqueFd> ConnectAttachSocket(const std::string& path, bool admin,
                                             std::chrono::milliseconds send_timeout, bool names) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return LocalError(absl::StatusCode::kInvalidArgument,
                      "cannot attach: the socket path " + path + " has " +
                          std::to_string(path.size()) + " bytes, and the kernel takes at most " +
                          std::to_string(sizeof(address.sun_path) - 1),
                      0, "Use a shorter socket directory, or a symbolic link to it.");
  }
  memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return ConnectError(path, admin, errno, names);
  // Bounds connect() too: it waits while the daemon's queue of connections is full.
  if (const int error = SetSendTimeout(socket.get(), send_timeout); error != 0) {
    return ConnectError(path, admin, error, names);
  }
  int result;
  do {
    result = connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return ConnectError(path, admin, errno, names);
  return socket;
}

int SetSendTimeout(int socket, std::chrono::milliseconds send_timeout) {
  const auto usec = std::chrono::duration_cast<std::chrono::microseconds>(send_timeout).count();
  const timeval timeout = {usec / 1'000'000, usec % 1'000'000};
  const bool set = setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) == 0;
  return set ? 0 : errno;
}

int SendPacket(int socket, const v1::ClientPacket& packet, std::span<const int> fds) {
  return Send(socket, packet.SerializeAsString(), SCM_RIGHTS, fds.data(), fds.size_bytes());
}

int SendPacketWithCredentials(int socket, const v1::ClientPacket& packet) {
  // The effective ids: they are what SO_PEERCRED told the daemon.
  const ucred credentials = {getpid(), geteuid(), getegid()};
  return Send(socket, packet.SerializeAsString(), SCM_CREDENTIALS, &credentials,
              sizeof(credentials));
}

Received ReceivePacket(int socket, v1::DaemonPacket* packet) {
  char data[kMaxPacketBytes];
  // No room for control messages: descriptors that the peer might send are dropped by the kernel.
  const auto receive = [&] { return recv(socket, data, sizeof(data), MSG_DONTWAIT | MSG_TRUNC); };
  ssize_t size;
  do {
    size = receive();
  } while (size < 0 && errno == EINTR);
  // A peer that closes before it has read all of ours leaves ECONNRESET, which the kernel tells
  // before it gives what the peer sent: the refusal that explains the hang-up.
  if (size < 0 && errno == ECONNRESET) size = receive();
  if (size < 0) return errno == EAGAIN ? Received::kNothing : Received::kHangUp;
  if (size == 0) return Received::kHangUp;
  if (static_cast<size_t>(size) > sizeof(data) ||
      !packet->ParseFromArray(data, static_cast<int>(size))) {
    return Received::kMalformed;
  }
  return Received::kPacket;
}

}  // namespace mrd::internal
