// A descriptor whose last close takes a minute: a TCP socket that lingers over what its peer does
// not read. Any user can make one.
#ifndef MRD_TESTS_IPC_LINGERING_H_
#define MRD_TESTS_IPC_LINGERING_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "daemon/unique_fd.h"

namespace mrd {

class Lingering {
 public:
  Lingering() {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int little = 4096;
    setsockopt(listener.get(), SOL_SOCKET, SO_RCVBUF, &little, sizeof little);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const where = reinterpret_cast<sockaddr*>(&address);
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const linger minute{1, 60};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &minute, sizeof minute);
    if (bind(listener.get(), where, length) < 0 || listen(listener.get(), 1) < 0 ||
        getsockname(listener.get(), where, &length) < 0 || connect(fd.get(), where, length) < 0) {
      return;
    }
    peer_.reset(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string much(65536, 'x');
    while (send(fd.get(), much.data(), much.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
    }
    fd_ = std::move(fd);
  }
  // Closes that linger go on.
  ~Lingering() {
    Reset(peer_);
    if (fd_) Reset(fd_);
  }

  int fd() const { return fd_.get(); }
  // Without it nobody but whoever got it has it.
  void Forget() { fd_.reset(); }

 private:
  // Its close, and that at the other end, take no time.
  static void Reset(const UniqueFd& fd) {
    const linger none{1, 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);
  }

  UniqueFd peer_;
  UniqueFd fd_;
};

}  // namespace mrd

#endif  // MRD_TESTS_IPC_LINGERING_H_
