#include "tests/e2e/attach_socket.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/un.h>

namespace mrd::e2e {

UniqueFd Connect(const std::string& path, int type) {
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  Require(path.size() < sizeof address.sun_path, "a short path");
  memcpy(address.sun_path, path.data(), path.size());
  Require(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
          "connect to " + path);
  return fd;
}

bool AttachSocket::SendBytes(const std::string& bytes, const std::vector<int>& fds,
                             std::optional<ucred> credentials) const {
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  const size_t fd_bytes = fds.size() * sizeof(int);
  const size_t room =
      (fds.empty() ? 0 : CMSG_SPACE(fd_bytes)) + (credentials ? CMSG_SPACE(sizeof(ucred)) : 0);
  std::vector<char> control(room + 1);
  if (room > 0) {
    message.msg_control = control.data();
    message.msg_controllen = room;
  }
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  const auto add = [&](int type, const void* content, size_t size) {
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = type;
    part->cmsg_len = CMSG_LEN(size);
    memcpy(CMSG_DATA(part), content, size);
    part = CMSG_NXTHDR(&message, part);
  };
  if (!fds.empty()) add(SCM_RIGHTS, fds.data(), fd_bytes);
  if (credentials) add(SCM_CREDENTIALS, &*credentials, sizeof(ucred));
  const ssize_t sent = sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  Require(sent >= 0 || errno == EPIPE || errno == ECONNRESET, "sendmsg");
  return sent >= 0;
}

bool AttachSocket::Send(const v1::ClientPacket& packet, const std::vector<int>& fds,
                        std::optional<ucred> credentials) const {
  return SendBytes(packet.SerializeAsString(), fds, credentials);
}

bool AttachSocket::SendHello(const std::string& name, const std::vector<int>& fds) const {
  v1::ClientPacket packet;
  packet.mutable_hello()->set_protocol_version(1);
  packet.mutable_hello()->set_name(name);
  return Send(packet, fds);
}

bool AttachSocket::SendAnswer(const std::string& nonce, std::optional<ucred> credentials) const {
  v1::ClientPacket packet;
  packet.mutable_answer()->set_nonce(nonce);
  return Send(packet, {}, credentials);
}

bool AttachSocket::SendBuffers(const std::vector<uint64_t>& ids,
                               const std::vector<int>& fds) const {
  v1::ClientPacket packet;
  for (const uint64_t id : ids) packet.mutable_pass_buffers()->add_buffer_ids(id);
  return Send(packet, fds);
}

bool AttachSocket::ReceiveBytes(Clock::time_point deadline, std::string* bytes) const {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
  pollfd poll_fd{fd_.get(), POLLIN, 0};
  if (left < 0 || poll(&poll_fd, 1, static_cast<int>(left)) != 1) return false;
  char buffer[8192];
  const ssize_t length = recv(fd_.get(), buffer, sizeof buffer, 0);
  bytes->assign(buffer, length > 0 ? length : 0);
  return true;
}

std::optional<v1::DaemonPacket> AttachSocket::Receive(milliseconds within) const {
  std::string bytes;
  v1::DaemonPacket packet;
  if (!ReceiveBytes(Clock::now() + within, &bytes) || bytes.empty()) return std::nullopt;
  Require(packet.ParseFromString(bytes), "a DaemonPacket from the daemon");
  return packet;
}

bool AttachSocket::HangsUp(milliseconds within) const {
  const auto deadline = Clock::now() + within;
  std::string bytes;
  while (ReceiveBytes(deadline, &bytes)) {
    if (bytes.empty()) return true;
  }
  return false;
}

v1::Reason AttachSocket::ReceiveRefusal(milliseconds within) const {
  const auto packet = Receive(within);
  v1::ErrorDetail detail;
  if (packet && packet->has_refusal()) detail.ParseFromString(packet->refusal().detail());
  return detail.reason();
}

}  // namespace mrd::e2e
