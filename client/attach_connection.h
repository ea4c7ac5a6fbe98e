// The attach socket of one session: the connection there is now, which is another one after the
// daemon was restarted, and the buffers that are passed on it.
//
// Thread-safe, except construction and destruction.
#ifndef MRD_CLIENT_ATTACH_CONNECTION_H_
#define MRD_CLIENT_ATTACH_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "client/attach_handshake.h"
#include "client/mutex.h"
#include "client/unique_fd.h"

namespace mrd::internal {

class AttachConnection final {
 public:
  AttachConnection() = default;
  ~AttachConnection() { HangUp(); }
  AttachConnection(const AttachConnection&) = delete;
  AttachConnection& operator=(const AttachConnection&) = delete;

  // This is the connection from now on, of that epoch (session_state.h); the one before is closed.
  void Install(uint64_t epoch, Attached attached);

  // For the thread that installs: what it installed last.
  int socket() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return current_->fd.get(); }
  // Whether the daemon, or HangUp(), has ended it.
  bool HungUp() const;

  // Passes fds[i] as buffer ids[i], in as many packets as the daemon's limit needs. The caller
  // keeps its descriptors. `passed`: how many went out, the first ones; on an error those of the
  // packets before it. UNAVAILABLE without a reason: the connection of `epoch` is no more.
  // REQUIRES: as many fds as ids.
  absl::Status PassBuffers(uint64_t epoch, std::span<const uint64_t> ids, std::span<const int> fds,
                           size_t* passed);

  // Hangs up, now and whatever is installed later.
  void HangUp();

 private:
  struct Current {
    UniqueFd fd;
    uint64_t epoch;
    size_t most;  // Descriptors in one packet.
  };
  std::shared_ptr<const Current> current() const;

  mutable Mutex mutex_;  // Never held while sending.
  std::shared_ptr<const Current> current_ ABSL_GUARDED_BY(mutex_);
  bool hung_up_ ABSL_GUARDED_BY(mutex_) = false;
  Mutex send_mutex_;  // Packets go out whole and in order.
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_ATTACH_CONNECTION_H_
