// The gRPC calls of one session: each carries the session's token and has a deadline. No type of
// gRPC shows here, so that only rpc.cc pays for its headers. Thread-safe.
//
// What is repeated within a call's deadline, with growing pauses:
// - any call that had no effect: refused as BUSY or SESSION_AWAITED, or refused because the daemon
//   was restarted (the token or a buffer was unknown to the new one, or the old one was ending);
// - calls marked "repeats" whose connection broke, so that nobody knows whether they had one.
//   Register relies on its request_id; Deregister and ReleaseBuffers take "unknown" in a repeat to
//   mean that the first try was done.
// While the daemon is away (session_state.h) no try is made: calls wait, within their deadline.
// Once the session has ended, every call returns what ended it.
#ifndef MRD_CLIENT_RPC_H_
#define MRD_CLIENT_RPC_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "client/mutex.h"
#include "client/progress.h"
#include "client/session_state.h"
#include "mrd/v1/admin.pb.h"
#include "mrd/v1/device.pb.h"
#include "mrd/v1/domain.pb.h"
#include "mrd/v1/endpoint.pb.h"
#include "mrd/v1/registration.pb.h"
#include "mrd/v1/session.pb.h"

namespace mrd::internal {

class Rpc final {
 public:
  using Duration = std::chrono::milliseconds;

  // Before each try: what has to be on the daemon's side for it, in that epoch. UNAVAILABLE without
  // a reason: the connection broke. May be empty.
  using Prepare = std::function<absl::Status(uint64_t epoch)>;

  // What a call does while the daemon is away: who destroys something does not wait.
  enum class Gap { kWait, kFail };
  // Whether that is why it failed.
  static bool DaemonIsAway(const absl::Status& status);

  // Who restores the session makes calls while those of others wait. A call of theirs fails as soon
  // as `alive` is false and its connection has broken.
  struct Restorer {
    SessionState::Ticket ticket;
    std::function<bool()> alive;
  };

  // Connects with the first call. `socket_path` is the daemon's gRPC socket.
  Rpc(const std::string& socket_path, std::shared_ptr<SessionState> state,
      std::shared_ptr<ProgressCalls> progress);
  ~Rpc();
  Rpc(const Rpc&) = delete;
  Rpc& operator=(const Rpc&) = delete;

  // The daemon is there again: connects now, and not after the pause that failures have made.
  void Reconnect();

  // Cancels what a Restorer calls, now and later.
  void StopRestoring();

  // Repeats.
  // `on_progress`, which may be empty, hears of a long one, and can cancel it (CANCELLED).
  struct RegisterOptions {
    Duration timeout;
    Prepare prepare = {};
    ProgressCalls::Callback on_progress = {};
    const Restorer* restorer = nullptr;
  };
  struct Registered {
    absl::Status status;
    uint64_t epoch;  // Of the last try.
    bool repeated;   // An earlier try may have had its effect.
  };
  Registered Register(const v1::RegisterRequest&, v1::RegisterResponse*, const RegisterOptions&);
  // A repeat of it changes nothing.
  absl::Status AddKeys(const v1::AddKeysRequest&, v1::AddKeysResponse*, Duration timeout,
                       const Prepare& prepare);
  absl::Status Deregister(const v1::DeregisterRequest&, Duration timeout, Gap gap = Gap::kWait);
  absl::Status ReleaseBuffers(const v1::ReleaseBuffersRequest&, Duration timeout);
  absl::Status RenewLeases(const v1::RenewLeasesRequest&, v1::RenewLeasesResponse*,
                           Duration timeout);
  absl::Status ListLeases(const v1::ListLeasesRequest&, v1::ListLeasesResponse*, Duration timeout);
  absl::Status ListDevices(v1::ListDevicesResponse*, Duration timeout);
  absl::Status GetStatus(const v1::GetStatusRequest&, v1::GetStatusResponse*, Duration timeout);
  absl::Status ListSessions(const v1::ListSessionsRequest&, v1::ListSessionsResponse*,
                            Duration timeout);
  absl::Status ListAllLeases(const v1::ListAllLeasesRequest&, v1::ListAllLeasesResponse*,
                             Duration timeout);
  absl::Status ListAllEndpoints(const v1::ListAllEndpointsRequest&, v1::ListAllEndpointsResponse*,
                                Duration timeout);
  absl::Status ListAllDomains(const v1::ListAllDomainsRequest&, v1::ListAllDomainsResponse*,
                              Duration timeout);
  absl::Status RevokeSession(const v1::RevokeSessionRequest&, Duration timeout);
  absl::Status DrainDaemon(const v1::DrainDaemonRequest&, v1::DrainDaemonResponse*,
                           Duration timeout);
  absl::Status UndrainDaemon(Duration timeout);
  absl::Status ListGenerations(v1::ListGenerationsResponse*, Duration timeout);
  absl::Status LeaveGeneration(const v1::LeaveGenerationRequest&, v1::LeaveGenerationResponse*,
                               Duration timeout);
  absl::Status ReloadPolicy(v1::ReloadPolicyResponse*, Duration timeout);
  absl::Status OpenDomain(const v1::OpenDomainRequest&, v1::OpenDomainResponse*, Duration timeout,
                          const Restorer* restorer = nullptr);
  absl::Status ListDomains(v1::ListDomainsResponse*, Duration timeout);
  absl::Status GetMetrics(v1::GetMetricsResponse*, Duration timeout);
  absl::Status ListEndpoints(v1::ListEndpointsResponse*, Duration timeout);
  absl::Status Disconnect(const v1::DisconnectRequest&, Duration timeout, Gap gap = Gap::kWait);

  // "Unknown" in a repeat means that the first try was done.
  absl::Status CloseDomain(const v1::CloseDomainRequest&, Duration timeout);

  // The next four do not repeat, and are sent only on a connection that stands: where that breaks
  // under one, its error says that nobody knows whether it had an effect.
  //
  // Those that a first try ended would be unknown to the second.
  absl::Status RevokeLeases(const v1::RevokeLeasesRequest&, v1::RevokeLeasesResponse*,
                            Duration timeout);

  // Each try could make an endpoint.
  absl::Status Listen(const v1::ListenRequest&, v1::ListenResponse*, Duration timeout);
  absl::Status Accept(const v1::AcceptRequest&, v1::AcceptResponse*, Duration timeout);
  absl::Status Connect(const v1::ConnectRequest&, v1::ConnectResponse*, Duration timeout);

 private:
  struct Stubs;
  struct Outcome;
  struct Calling;
  class Cancellable;
  template <typename Try>
  Outcome Run(const Calling& calling, Try&& attempt);
  template <typename Try>
  absl::Status Repeating(const char* name, Duration timeout, Try&& attempt);
  template <typename Try>
  absl::Status Once(const char* name, Duration timeout, const char* teller, Try&& attempt);
  bool AwaitChannel(uint64_t epoch, SessionState::Clock::time_point until);

  const std::string socket_path_;
  const std::shared_ptr<SessionState> state_;
  const std::shared_ptr<ProgressCalls> progress_;
  const std::unique_ptr<Stubs> stubs_;
  Mutex restoring_mutex_;
  std::function<void()> cancel_restoring_ ABSL_GUARDED_BY(restoring_mutex_);
  std::atomic<bool> restoring_stopped_ = false;  // Written under the mutex.
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_RPC_H_
