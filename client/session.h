// One session of this process, shared by the client and all that was made in it: buffers, regions
// and endpoints keep it alive, so that the order in which they are destroyed does not matter.
// Thread-safe.
#ifndef MRD_CLIENT_SESSION_H_
#define MRD_CLIENT_SESSION_H_

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/attach_connection.h"
#include "client/renewer.h"
#include "client/rpc.h"
#include "client/session_state.h"

namespace mrd::internal {

class Session final {
 public:
  // `socket_dir` holds attach.sock and mrd.sock; parameters.path is filled in from it and from
  // parameters.admin.
  static absl::StatusOr<std::shared_ptr<Session>> Attach(const std::string& socket_dir,
                                                         AttachParameters parameters,
                                                         Rpc::Duration call_timeout, bool renew);

  // Ends the session. In a forked child: leaves everything alone.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const SessionState& state() const { return *state_; }
  const v1::AttachWelcome& welcome() const { return connection_->welcome(); }
  AttachConnection& connection() { return *connection_; }
  Rpc& rpc() { return *rpc_; }
  Rpc::Duration call_timeout() const { return call_timeout_; }

  // Leases were granted with this ttl: it is kept, unless the caller renews.
  void Granted(Renewer::Ttl ttl) {
    if (renewer_) renewer_->Granted(ttl);
  }
  // Renews those named or, where none is, all.
  absl::StatusOr<std::optional<Renewer::Ttl>> Renew(std::span<const uint64_t> lease_ids,
                                                    Rpc::Duration timeout);

  // Held while buffers get their ids and are passed; see BufferState::PassAll.
  Mutex& pass_mutex() ABSL_LOCK_RETURNED(pass_mutex_) { return pass_mutex_; }

  // For Register: one that no other call has, by this process or another.
  std::string NewRequestId();
  uint64_t NewBufferId() { return next_buffer_id_.fetch_add(1, std::memory_order_relaxed); }

  // How many buffers the daemon holds of this session, or a few more: a buffer is counted from when
  // it was passed until the daemon said that it let go, or that it has none.
  uint64_t buffers_passed() const { return buffers_passed_.load(std::memory_order_relaxed); }
  void CountPassed(uint64_t count) { buffers_passed_.fetch_add(count, std::memory_order_relaxed); }
  void CountReleased() { buffers_passed_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  Session(std::shared_ptr<SessionState> state, std::unique_ptr<AttachConnection> connection,
          std::unique_ptr<Rpc> rpc, Rpc::Duration call_timeout, bool renew);

  const std::shared_ptr<SessionState> state_;
  std::unique_ptr<AttachConnection> connection_;
  std::unique_ptr<Rpc> rpc_;
  const Rpc::Duration call_timeout_;
  Mutex pass_mutex_;
  const std::string request_prefix_;
  std::atomic<uint64_t> next_request_ = 1;
  std::atomic<uint64_t> next_buffer_id_ = 1;
  std::atomic<uint64_t> buffers_passed_ = 0;
  std::unique_ptr<Renewer> renewer_;  // Last: it makes calls. Null: the caller renews.
};

// Where the daemon's sockets are: `socket_dir`, else $MRD_SOCKET_DIR, else /run/mrd; without
// slashes at the end.
std::string ResolveSocketDir(const std::string& socket_dir);

// DIR/attach.sock, or DIR-admin/attach.sock for an admin session.
std::string AttachPath(const std::string& socket_dir, bool admin);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_SESSION_H_
