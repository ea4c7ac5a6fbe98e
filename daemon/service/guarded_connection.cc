#include "daemon/service/guarded_connection.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "daemon/mutex.h"
#include "daemon/service/frame_guard.h"

namespace mrd::service {
namespace {

constexpr size_t kKernelMostFds = 253;  // SCM_MAX_FD.

struct Guarded {
  Guarded(Client client, const FrameLimits& limits, std::shared_ptr<UserCalls> user)
      : client(std::move(client)), guard(limits, std::move(user)) {}

  const Client client;
  const std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  FrameGuard guard;
  std::atomic<bool> ended{false};  // For what its client did.
  bool over = false;               // Guarded by the table's lock.
};

// Of a socket and of no other one, though its descriptor's number is used again (socket(7),
// SO_COOKIE; of one network namespace before Linux 5.4, and all that a daemon accepts are of one).
// 0: unknown.
uint64_t CookieOf(int fd) {
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length);
  return cookie;
}

class Table {
 public:
  bool Add(int fd, const FrameLimits& limits, Client client) {
    const uint64_t cookie = CookieOf(fd);
    if (cookie == 0) return false;
    MutexLock lock(mutex_);
    auto& known = users_[client.uid];
    auto user = known.lock();
    if (!user) known = user = std::make_shared<UserCalls>();
    by_cookie_[cookie] = std::make_shared<Guarded>(std::move(client), limits, std::move(user));
    return true;
  }

  void SetOver(int fd) {
    const uint64_t cookie = CookieOf(fd);
    MutexLock lock(mutex_);
    const auto known = by_cookie_.find(cookie);
    if (known == by_cookie_.end()) return;
    if (std::exchange(known->second->over, true)) return;
    over_.push_back({std::chrono::steady_clock::now(), cookie});
    known->second->guard.SetOver();
  }

  void ForgetOver() {
    const auto before = std::chrono::steady_clock::now() - kKept;
    MutexLock lock(mutex_);
    if (over_.empty() || over_.front().since >= before) return;
    for (; !over_.empty() && over_.front().since < before; over_.pop_front()) {
      by_cookie_.erase(over_.front().cookie);
    }
    std::erase_if(users_, [](const auto& each) { return each.second.expired(); });
  }

  // Null: not guarded.
  std::shared_ptr<Guarded> Find(int fd) {
    const uint64_t cookie = CookieOf(fd);
    MutexLock lock(mutex_);
    const auto known = by_cookie_.find(cookie);
    return known == by_cookie_.end() ? nullptr : known->second;
  }

 private:
  // Far longer than gRPC needs to let go of a connection that is over.
  static constexpr std::chrono::seconds kKept{60};

  struct Over {
    std::chrono::steady_clock::time_point since;
    uint64_t cookie;
  };

  Mutex mutex_;
  std::deque<Over> over_ MRD_GUARDED_BY(mutex_);  // Of those in by_cookie_, the first one first.
  std::unordered_map<uint64_t, std::shared_ptr<Guarded>> by_cookie_ MRD_GUARDED_BY(mutex_);
  std::unordered_map<uint32_t, std::weak_ptr<UserCalls>> users_ MRD_GUARDED_BY(mutex_);
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
  std::string frame{0, 0, static_cast<char>(8 + why.size()), FrameHeader::kGoAway, 0, 0, 0, 0, 0};
  frame += std::string{0x7f, '\xff', '\xff', '\xff', 0, 0, 0, kEnhanceYourCalm} + why;
  send(fd, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

void End(int fd, Guarded& guarded, const char* what) {
  if (guarded.ended.exchange(true)) return;
  SendGoAway(fd, what);
  shutdown(fd, SHUT_RDWR);  // Also ends what gRPC waits to send to a peer that does not read.
  guarded.client.on_abuse(what);
}

// Calls `each` with the pieces of the first `length` bytes of a message, until it returns a text.
template <typename Each>
const char* ForEachPiece(const msghdr& message, size_t length, Each each) {
  for (size_t i = 0; i < message.msg_iovlen && length > 0; ++i) {
    const iovec& piece = message.msg_iov[i];
    const size_t bytes = std::min(piece.iov_len, length);
    const char* const text = each(static_cast<const char*>(piece.iov_base), bytes);
    if (text != nullptr) return text;
    length -= bytes;
  }
  return nullptr;
}

// Hands the descriptors on. True: there were some.
bool TakeDescriptors(const msghdr& message, const Client& client) {
  bool any = false;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(const_cast<msghdr*>(&message), part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      client.on_descriptor(UniqueFd(fd));
      any = true;
    }
  }
  return any;
}

ssize_t Receive(int fd, msghdr* message, int flags) {
  return syscall(SYS_recvmsg, fd, message, flags);
}

ssize_t ReceiveGuarded(int fd, Guarded& guarded, msghdr* message, int flags) {
  // gRPC has no room for descriptors: the kernel would drop them right here, and the close of some
  // sleeps as long as their sender likes (SO_LINGER).
  alignas(cmsghdr) char control[CMSG_SPACE(kKernelMostFds * sizeof(int))];
  msghdr with_control = *message;
  with_control.msg_control = control;
  with_control.msg_controllen = sizeof control;
  const ssize_t length = Receive(fd, &with_control, flags | MSG_CMSG_CLOEXEC);
  if (length <= 0) return length;
  const char* too_much = TakeDescriptors(with_control, guarded.client)
                             ? "descriptors, which belong to the attach socket"
                             : nullptr;
  if (too_much == nullptr && !guarded.ended) {
    too_much = ForEachPiece(*message, length, [&](const char* bytes, size_t count) {
      return guarded.guard.Received(bytes, count);
    });
  }
  if (too_much != nullptr) End(fd, guarded, too_much);
  message->msg_controllen = 0;
  message->msg_flags = with_control.msg_flags;
  if (!guarded.ended) return length;
  errno = ECONNRESET;
  return -1;
}

}  // namespace

bool Guard(int connection, const FrameLimits& limits, Client client) {
  return Connections().Add(connection, limits, std::move(client));
}

void SetOver(int connection) { Connections().SetOver(connection); }

void ForgetOver() { Connections().ForgetOver(); }

void EndPeer(const std::string& peer, std::chrono::steady_clock::time_point call,
             const char* what) {
  absl::string_view number = peer;
  int fd;
  if (!absl::ConsumePrefix(&number, "fd:") || !absl::SimpleAtoi(number, &fd)) return;
  const auto guarded = Connections().Find(fd);
  if (guarded && guarded->since < call) End(fd, *guarded, what);
}

bool GuardsWork() {
  return dlsym(RTLD_DEFAULT, "recvmsg") == reinterpret_cast<void*>(&recvmsg) &&
         dlsym(RTLD_DEFAULT, "sendmsg") == reinterpret_cast<void*>(&sendmsg);
}

}  // namespace mrd::service

extern "C" ssize_t recvmsg(int fd, msghdr* message, int flags) {
  using mrd::service::Connections;
  const auto guarded = Connections().Find(fd);
  if (!guarded) return mrd::service::Receive(fd, message, flags);
  return mrd::service::ReceiveGuarded(fd, *guarded, message, flags);
}

extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  const auto guarded = mrd::service::Connections().Find(fd);
  if (guarded) guarded->guard.Sending();
  const ssize_t length = syscall(SYS_sendmsg, fd, message, flags);
  if (guarded && length > 0) {
    mrd::service::ForEachPiece(*message, length, [&](const char* bytes, size_t count) {
      guarded->guard.Sent(bytes, count);
      return static_cast<const char*>(nullptr);
    });
  }
  return length;
}
