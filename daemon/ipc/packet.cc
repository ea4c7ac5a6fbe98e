#include "daemon/ipc/packet.h"

#include <errno.h>
#include <string.h>

namespace mrd::ipc {
namespace {

constexpr size_t kKernelMostFds =
    253;  // SCM_MAX_FD: so many arrive whole, and are counted rather than truncated.

}  // namespace

Received Receive(int socket, Packet* packet) {
  char bytes[kMostPacketBytes + 1];
  alignas(
      cmsghdr) char control[CMSG_SPACE(kKernelMostFds * sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
  iovec data{bytes, sizeof bytes};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t length;
  do {
    length = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (length < 0 && errno == EINTR);
  if (length < 0) return errno == EAGAIN ? Received::kNothing : Received::kHangUp;

  packet->fds.clear();
  packet->credentials.reset();
  size_t rights = 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_RIGHTS) {
      ++rights;
      const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
        packet->fds.emplace_back(fd);
      }
    } else if (part->cmsg_type == SCM_CREDENTIALS && part->cmsg_len == CMSG_LEN(sizeof(ucred))) {
      memcpy(&packet->credentials.emplace(), CMSG_DATA(part), sizeof(ucred));
    }
  }
  // MSG_CTRUNC: descriptors were lost, mostly for want of free ones in this process.
  const bool lost = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  if (lost || rights > 1 || packet->fds.size() > kMostPacketFds ||
      static_cast<size_t>(length) > kMostPacketBytes) {
    return Received::kMalformed;
  }
  // An empty packet looks like a hang-up, and no message of the protocol is empty.
  if (length == 0) return packet->fds.empty() ? Received::kHangUp : Received::kMalformed;
  packet->bytes.assign(bytes, length);
  return Received::kPacket;
}

bool Send(int socket, absl::string_view bytes) {
  ssize_t sent;
  do {
    sent = send(socket, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes.size());
}

}  // namespace mrd::ipc
