#include "client/attach_connection.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "client/attach_socket.h"
#include "client/local_error.h"

namespace mrd::internal {

void AttachConnection::Install(uint64_t epoch, Attached attached) {
  const size_t most = std::max<size_t>(attached.welcome.limits().max_buffers_per_packet(), 1);
  // The one before is closed when the last sender has let go of it.
  std::shared_ptr<const Current> next(new Current{std::move(attached.socket), epoch, most});
  MutexLock lock(&mutex_);
  current_.swap(next);
  if (hung_up_) shutdown(current_->fd.get(), SHUT_RDWR);
}

std::shared_ptr<const AttachConnection::Current> AttachConnection::current() const {
  MutexLock lock(&mutex_);
  return current_;
}

bool AttachConnection::HungUp() const {
  const auto connection = current();
  pollfd fd = {connection->fd.get(), POLLRDHUP, 0};
  return poll(&fd, 1, 0) > 0;
}

void AttachConnection::HangUp() {
  MutexLock lock(&mutex_);
  hung_up_ = true;
  // Not close: a forked child's copy of the descriptor would keep the connection.
  if (current_) shutdown(current_->fd.get(), SHUT_RDWR);
}

absl::Status AttachConnection::PassBuffers(uint64_t epoch, std::span<const uint64_t> ids,
                                           std::span<const int> fds, size_t* passed) {
  *passed = 0;
  MutexLock lock(&send_mutex_);
  const auto connection = current();
  if (connection->epoch != epoch) {
    return absl::UnavailableError("the attach socket was connected anew meanwhile");
  }
  const size_t most = connection->most;
  for (size_t first = 0; first < ids.size(); first += most) {
    const size_t count = std::min(most, ids.size() - first);
    v1::ClientPacket packet;
    packet.mutable_pass_buffers()->mutable_buffer_ids()->Add(ids.begin() + first,
                                                             ids.begin() + first + count);
    const int error = SendPacket(connection->fd.get(), packet, fds.subspan(first, count));
    if (error == 0) {
      *passed += count;
      continue;
    }
    if (error == EPIPE || error == ECONNRESET) {
      return absl::UnavailableError("the daemon hung up the attach socket");
    }
    if (error == EAGAIN) {
      return LocalError(absl::StatusCode::kDeadlineExceeded,
                        "cannot pass a buffer: the daemon did not read its attach socket", error,
                        "It is overloaded or stuck; see its log.");
    }
    return LocalError(absl::StatusCode::kResourceExhausted, "cannot pass a buffer to the daemon",
                      error,
                      error == ETOOMANYREFS
                          ? "Too many descriptors are under way (RLIMIT_NOFILE): register fewer "
                            "buffers at a time, or raise ulimit -n."
                          : "");
  }
  return absl::OkStatus();
}

}  // namespace mrd::internal
