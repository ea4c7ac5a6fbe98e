// The socket on which the service manager is told things: sd_notify(3), but for one thing. That
// waits where the manager does not read; here who must not wait does not.
#ifndef MRD_DAEMON_HOST_NOTIFY_SOCKET_H_
#define MRD_DAEMON_HOST_NOTIFY_SOCKET_H_

#include <atomic>
#include <string>
#include <string_view>
#include <utility>

namespace mrd::host {

// Thread-safe.
class NotifySocket {
 public:
  enum Patience {
    kNone,  // EAGAIN where there is no room.
    kSome,  // Seconds.
  };

  // Of $NOTIFY_SOCKET: a path, or with a leading '@' an abstract name. Empty where it is not set.
  NotifySocket();
  explicit NotifySocket(std::string address) : address_(std::move(address)) {}

  explicit operator bool() const { return !address_.empty(); }

  // One message, lines of NAME=VALUE, with a duplicate of `fd` unless that is -1. The errno; 0: it
  // was taken; EDESTADDRREQ: there is nobody to tell. Nothing is logged.
  int TrySend(std::string_view message, Patience patience, int fd = -1) const;

  // One message, lines of NAME=VALUE. False: it was not taken, or there is nobody to tell. The
  // first of several failures is logged.
  bool Send(std::string_view message, Patience patience);

 private:
  const std::string address_;
  std::atomic<bool> failing_{false};
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_NOTIFY_SOCKET_H_
