// A service manager's end of $NOTIFY_SOCKET.
#ifndef MRD_TESTS_HOST_NOTIFY_RECEIVER_H_
#define MRD_TESTS_HOST_NOTIFY_RECEIVER_H_

#include <gtest/gtest.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <chrono>
#include <optional>
#include <string>

#include "daemon/unique_fd.h"

namespace mrd::host {

class NotifyReceiver {
 public:
  // `address`: a path, or '@' and an abstract name.
  explicit NotifyReceiver(const std::string& address)
      : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un own{};
    own.sun_family = AF_UNIX;
    memcpy(own.sun_path, address.data(), address.size());
    if (address[0] == '@') own.sun_path[0] = '\0';
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&own),
                   static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address.size())),
              0)
        << strerror(errno);
  }

  // The next message; nothing where none comes.
  std::optional<std::string> Next(std::chrono::milliseconds within = std::chrono::seconds(20)) {
    pollfd readable{socket_.get(), POLLIN, 0};
    if (poll(&readable, 1, static_cast<int>(within.count())) != 1) return std::nullopt;
    char message[4096];
    const ssize_t length = recv(socket_.get(), message, sizeof message, 0);
    if (length < 0) return std::nullopt;
    return std::string(message, length);
  }
  // The descriptor that comes with the message that waits; none where none does.
  UniqueFd NextFd() {
    char message[4096];
    iovec data{message, sizeof message};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    if (recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) < 0) return UniqueFd();
    const cmsghdr* const part = CMSG_FIRSTHDR(&header);
    if (part == nullptr || part->cmsg_type != SCM_RIGHTS) return UniqueFd();
    int fd;
    memcpy(&fd, CMSG_DATA(part), sizeof fd);
    return UniqueFd(fd);
  }
  // What waits already.
  std::optional<std::string> Waiting() { return Next(std::chrono::milliseconds(0)); }

  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
};

}  // namespace mrd::host

#endif  // MRD_TESTS_HOST_NOTIFY_RECEIVER_H_
