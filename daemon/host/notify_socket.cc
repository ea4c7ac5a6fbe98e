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

// The errno; 0: it was sent.
int SendTo(const std::string& address, std::string_view message, bool wait) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if ((address[0] != '/' && address[0] != '@') || address.size() >= sizeof to.sun_path) {
    return EINVAL;
  }
  memcpy(to.sun_path, address.data(), address.size());
  const bool abstract = address[0] == '@';
  if (abstract) to.sun_path[0] = '\0';
  const size_t length = offsetof(sockaddr_un, sun_path) + address.size() + (abstract ? 0 : 1);
  const UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket ||
      setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kMostWait, sizeof kMostWait) < 0) {
    return errno;
  }
  const ssize_t sent =
      sendto(socket.get(), message.data(), message.size(), MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT),
             reinterpret_cast<const sockaddr*>(&to), static_cast<socklen_t>(length));
  return sent < 0 ? errno : 0;
}

}  // namespace

NotifySocket::NotifySocket() : NotifySocket(FromEnvironment()) {}

bool NotifySocket::Send(std::string_view message, Patience patience) {
  if (address_.empty()) return false;
  const int error = SendTo(address_, message, patience == kSome);
  if (!failing_.exchange(error != 0) && error != 0) {
    spdlog::warn(
        "the service manager cannot be told how mrd is ($NOTIFY_SOCKET is {}): {}; mrd "
        "runs on",
        address_, strerror(error));
  }
  return error == 0;
}

}  // namespace mrd::host
