#include "daemon/service/guarded_connection.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "daemon/mutex.h"
#include "daemon/service/frame_guard.h"

namespace mrd::service {
namespace {

// Of a socket and of no other one, though its descriptor's number is used again (socket(7); of one
// network namespace before Linux 5.4, and all that a daemon accepts are of one). 0: unknown.
uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length);
  return cookie;
}

// Used by one thread at a time, but for guard.Sent: gRPC reads a connection in one.
struct Guarded {
  Guarded(uint64_t cookie, uint32_t most_streams, OnAbuse on_abuse)
      : cookie(cookie), on_abuse(std::move(on_abuse)), guard(most_streams) {}

  const uint64_t cookie;
  const OnAbuse on_abuse;
  FrameGuard guard;
  bool ended = false;
};

// Thread-safe.
class Table {
 public:
  void Add(int fd, std::shared_ptr<Guarded> guarded) {
    MutexLock lock(mutex_);
    by_fd_[fd] = std::move(guarded);  // Instead of one whose socket has gone.
  }

  // Null: not guarded.
  std::shared_ptr<Guarded> Find(int fd) {
    std::shared_ptr<Guarded> found;
    {
      MutexLock lock(mutex_);
      if (const auto known = by_fd_.find(fd); known != by_fd_.end()) found = known->second;
    }
    if (found && found->cookie != CookieOf(fd)) found.reset();
    return found;
  }

 private:
  Mutex mutex_;
  std::unordered_map<int, std::shared_ptr<Guarded>> by_fd_ MRD_GUARDED_BY(mutex_);
};

Table& Connections() {
  static Table& table = *new Table;  // gRPC's threads may outlive main().
  return table;
}

// RFC 9113, 6.8. As the last stream that was looked at it names the last there is: calls before may
// have been done, and are not to be repeated unasked. It may come into the middle of a frame that
// gRPC is sending: the connection is over in any case.
void SendGoAway(int fd, const std::string& why) {
  constexpr char kEnhanceYourCalm = 11;
  std::string frame{0, 0, static_cast<char>(8 + why.size()), 7, 0, 0, 0, 0, 0};
  frame += std::string{0x7f, '\xff', '\xff', '\xff', 0, 0, 0, kEnhanceYourCalm} + why;
  send(fd, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

const char* Look(Guarded& guarded, const msghdr& message, size_t length) {
  for (size_t i = 0; i < message.msg_iovlen && length > 0; ++i) {
    const iovec& piece = message.msg_iov[i];
    const size_t read = std::min(piece.iov_len, length);
    const char* const too_much = guarded.guard.Look(static_cast<const char*>(piece.iov_base), read);
    if (too_much != nullptr) return too_much;
    length -= read;
  }
  return nullptr;
}

// What recvmsg has read of a guarded connection: its length, or -1 and errno.
ssize_t Pass(int fd, Guarded& guarded, const msghdr& message, ssize_t length) {
  if (!guarded.ended) {
    const char* const too_much = Look(guarded, message, length);
    if (too_much == nullptr) return length;
    guarded.ended = true;
    SendGoAway(fd, too_much);
    shutdown(fd, SHUT_RDWR);  // Also ends what gRPC waits to send to a peer that does not read.
    guarded.on_abuse(too_much);
  }
  errno = ECONNRESET;
  return -1;
}

}  // namespace

bool Guard(int connection, uint32_t most_streams, OnAbuse on_abuse) {
  const uint64_t cookie = CookieOf(connection);
  if (cookie == 0) return false;
  Connections().Add(connection,
                    std::make_shared<Guarded>(cookie, most_streams, std::move(on_abuse)));
  return true;
}

bool GuardsWork() {
  return dlsym(RTLD_DEFAULT, "recvmsg") == reinterpret_cast<void*>(&recvmsg) &&
         dlsym(RTLD_DEFAULT, "sendmsg") == reinterpret_cast<void*>(&sendmsg);
}

}  // namespace mrd::service

extern "C" ssize_t recvmsg(int fd, msghdr* message, int flags) {
  const ssize_t length = syscall(SYS_recvmsg, fd, message, flags);
  if (length <= 0) return length;
  const auto guarded = mrd::service::Connections().Find(fd);
  if (!guarded) return length;
  return mrd::service::Pass(fd, *guarded, *message, length);
}

extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (const auto guarded = mrd::service::Connections().Find(fd)) guarded->guard.Sent();
  return syscall(SYS_sendmsg, fd, message, flags);
}
