// One attachment to the daemon: the handshake of attach.proto, the buffers passed, and a thread
// that reads the daemon's events. The session lives as long as this object's socket is connected.
//
// Thread-safe, except construction and destruction.
#ifndef MRD_CLIENT_ATTACH_CONNECTION_H_
#define MRD_CLIENT_ATTACH_CONNECTION_H_

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/mutex.h"
#include "client/session_state.h"
#include "client/unique_fd.h"
#include "mrd/v1/attach.pb.h"

namespace mrd::internal {

struct AttachParameters {
  std::string path;    // Of the attach socket.
  bool admin = false;  // It is the admin socket.
  std::string name;
  std::chrono::milliseconds timeout;  // For each step: connecting, being welcomed, passing buffers.
  std::function<void(const v1::AttachEvent&)> on_event;  // May be empty.
  std::function<void(const absl::Status&)> on_lost;      // May be empty.
};

class AttachConnection final {
 public:
  // Connects and is welcomed, or says why not. `state` ends when the daemon hangs up later.
  static absl::StatusOr<std::unique_ptr<AttachConnection>> Attach(
      AttachParameters parameters, std::shared_ptr<SessionState> state);

  // Ends the session. REQUIRES: not a forked child, where the thread to join is not.
  ~AttachConnection();

  AttachConnection(const AttachConnection&) = delete;
  AttachConnection& operator=(const AttachConnection&) = delete;

  const v1::AttachWelcome& welcome() const { return welcome_; }

  // Passes fds[i] as buffer ids[i], in as many packets as the daemon's limit needs. The caller
  // keeps its descriptors. `passed`: how many went out, the first ones; on an error those of the
  // packets before it. REQUIRES: as many fds as ids.
  absl::Status PassBuffers(std::span<const uint64_t> ids, std::span<const int> fds, size_t* passed);

  // Hangs up: the daemon ends the session and all that it holds. No callback follows.
  void HangUp();

 private:
  struct Shared;

  AttachConnection(std::shared_ptr<Shared> shared, v1::AttachWelcome welcome);

  const std::shared_ptr<Shared> shared_;
  const v1::AttachWelcome welcome_;
  Mutex send_mutex_;  // Packets go out whole and in order.
  std::thread reader_;
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_ATTACH_CONNECTION_H_
