// One session of this process, shared by the client and all that was made in it: buffers, regions
// and endpoints keep it alive, so that the order in which they are destroyed does not matter.
// Thread-safe.
#ifndef MRD_CLIENT_SESSION_H_
#define MRD_CLIENT_SESSION_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/attach_connection.h"
#include "client/attach_handshake.h"
#include "client/callbacks.h"
#include "client/keeper.h"
#include "client/leftovers.h"
#include "client/region_registry.h"
#include "client/rekeyed.h"
#include "client/renewer.h"
#include "client/rpc.h"
#include "client/session_state.h"

namespace mrd::internal {

class Session;

struct SessionOptions {
  AttachParameters attach;  // Its path is filled in.
  Rpc::Duration call_timeout;
  bool renew = true;
  OnLoss on_loss = OnLoss::kRestore;
  // Any may be empty.
  std::function<void(const v1::AttachEvent&)> on_event = {};
  std::function<void(const absl::Status&)> on_lost = {};
  std::function<void(const Rekeyed&)> on_rekeyed = {};
  // Makes in the new session of `restorer` what there was in the one before, and tells of it.
  // False: its connection broke meanwhile.
  std::function<bool(Session&, const Rpc::Restorer& restorer, Rekeyed*)> restore = {};
};

class Session final {
 public:
  // `socket_dir` holds attach.sock and mrd.sock.
  static absl::StatusOr<std::shared_ptr<Session>> Attach(const std::string& socket_dir,
                                                         SessionOptions options);

  // Ends the session. In a forked child: leaves everything alone.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Ends it now. No callback begins any more.
  void Detach();

  SessionState& state() { return *state_; }
  const SessionState& state() const { return *state_; }
  AttachConnection& connection() { return *connection_; }
  Callbacks& callbacks() { return *callbacks_; }
  Rpc& rpc() { return *rpc_; }
  RegionRegistry& regions() { return regions_; }
  const AttachParameters& parameters() const { return options_->attach; }
  OnLoss on_loss() const { return options_->on_loss; }
  Rpc::Duration call_timeout() const { return options_->call_timeout; }

  // Of the connection there is now, or was last. Without the token.
  std::shared_ptr<const v1::AttachWelcome> welcome() const;
  // How often a connection was lost and made again.
  uint64_t reconnections() const { return reconnections_.load(std::memory_order_relaxed); }

  // Leases were granted with this ttl: it is kept, unless the caller renews.
  void Granted(Renewer::Ttl ttl) {
    if (renewer_) renewer_->Granted(ttl);
  }
  // Renews those named or, where none is, all.
  absl::StatusOr<std::optional<Renewer::Ttl>> Renew(std::span<const uint64_t> lease_ids,
                                                    Rpc::Duration timeout);

  // To be ended when the daemon is back: it was away when they were destroyed.
  void LeaveLease(uint64_t lease_id);
  void LeaveEndpoint(uint64_t endpoint_id);

  // The named domains that the session has opened, and how.
  void Opened(const v1::OpenDomainRequest& domain);
  void Closed(const std::string& domain);
  std::vector<v1::OpenDomainRequest> domains() const;

  // Held while buffers get their ids and are passed; see BufferState::PassAll.
  Mutex& pass_mutex() ABSL_LOCK_RETURNED(pass_mutex_) { return pass_mutex_; }
  // How many buffers were passed in the epoch of the last pass, and not released.
  struct Passed {
    uint64_t epoch = 0;
    uint64_t count = 0;
  };
  Passed& passed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(pass_mutex_) { return passed_; }

  // For Register: one that no other call has, by this process or another.
  std::string NewRequestId();
  uint64_t NewBufferId() { return next_buffer_id_.fetch_add(1, std::memory_order_relaxed); }

  // For the keeper. The connection stands, and calls go out.
  void Connected(const v1::AttachWelcome& welcome);
  // SessionOptions::restore, in the epoch of the connection that is installed.
  bool Restore(const v1::AttachWelcome& welcome, uint64_t epoch, Rekeyed* rekeyed);

  // Have the callbacks called, where there are any.
  void Tell(const v1::AttachEvent& event);
  void TellLost(const absl::Status& why);
  void TellRekeyed(Rekeyed rekeyed);

 private:
  Session(SessionOptions options, std::shared_ptr<SessionState> state, const std::string& rpc_path);
  void EndLeftovers();
  // Whether it is the first.
  bool Welcomed(const v1::AttachWelcome& welcome);

  const std::shared_ptr<const SessionOptions> options_;  // The callbacks' too.
  const std::shared_ptr<SessionState> state_;
  const std::shared_ptr<ProgressCalls> progress_;
  std::unique_ptr<AttachConnection> connection_;
  std::unique_ptr<Callbacks> callbacks_;
  std::unique_ptr<Rpc> rpc_;
  RegionRegistry regions_;
  Leftovers leftovers_;
  std::atomic<uint64_t> reconnections_ = 0;
  mutable Mutex mutex_;
  std::shared_ptr<const v1::AttachWelcome> welcome_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, v1::OpenDomainRequest> domains_ ABSL_GUARDED_BY(mutex_);
  Mutex pass_mutex_;
  Passed passed_ ABSL_GUARDED_BY(pass_mutex_);
  const std::string request_prefix_;
  std::atomic<uint64_t> next_request_ = 1;
  std::atomic<uint64_t> next_buffer_id_ = 1;
  std::unique_ptr<Renewer> renewer_;  // It makes calls. Null: the caller renews.
  std::unique_ptr<Keeper> keeper_;    // It uses all of the above.
};

// Where the daemon's sockets are: `socket_dir`, else $MRD_SOCKET_DIR, else /run/mrd; without
// slashes at the end.
std::string ResolveSocketDir(const std::string& socket_dir);

// DIR/attach.sock, or DIR-admin/attach.sock for an admin session.
std::string AttachPath(const std::string& socket_dir, bool admin);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_SESSION_H_
