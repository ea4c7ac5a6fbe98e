#include "daemon/host/notify_socket.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "daemon/unique_fd.h"
#include "spdlog/spdlog.h"

namespace mrd::host {
namespace {

constexpr timeval kMostWait{.tv_sec = 5, .tv_usec = 0};

std::string FromEnvironment() {
  const char* const address = getenv("NOTIFY_SOCKET");
  return address != nullptr ? address : "";
}

}  // namespace

NotifySocket::NotifySocket() : NotifySocket(FromEnvironment()) {}

int NotifySocket::TrySend(std::string_view text, Patience patience, int fd) const {
  if (address_.empty()) return EDESTADDRREQ;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if ((address_[0] != '/' && address_[0] != '@') || address_.size() >= sizeof to.sun_path) {
    return EINVAL;
  }
  memcpy(to.sun_path, address_.data(), address_.size());
  const bool abstract = address_[0] == '@';
  if (abstract) to.sun_path[0] = '\0';
  const size_t length = offsetof(sockaddr_un, sun_path) + address_.size() + (abstract ? 0 : 1);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket ||
      setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kMostWait, sizeof kMostWait) < 0) {
    return errno;
  }
  iovec data{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_name = &to;
  message.msg_namelen = static_cast<socklen_t>(length);
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(part), &fd, sizeof fd);
  }
  const int flags = MSG_NOSIGNAL | (patience == kSome ? 0 : MSG_DONTWAIT);
  return sendmsg(socket.get(), &message, flags) < 0 ? errno : 0;
}

bool NotifySocket::Send(std::string_view message, Patience patience) {
  if (address_.empty()) return false;
  const int error = TrySend(message, patience);
  if (!failing_.exchange(error != 0) && error != 0) {
    spdlog::warn(
        "the service manager cannot be told how mrd is ($NOTIFY_SOCKET is {}): {}; mrd "
        "runs on",
        address_, strerror(error));
  }
  return error == 0;
}

}  // namespace mrd::host
