// The gRPC calls of one session: each carries the session's token and has a deadline. No type of
// gRPC shows here, so that only rpc.cc pays for its headers. Thread-safe.
//
// What is repeated within a call's deadline, with growing pauses:
// - any call that was refused as BUSY: it had no effect;
// - calls marked "repeats" whose connection broke, so that nobody knows whether they had one.
//   Register relies on its request_id; Deregister and ReleaseBuffers take "unknown" in a repeat to
//   mean that the first try was done.
// Once the session has ended, every call returns what ended it.
#ifndef MRD_CLIENT_RPC_H_
#define MRD_CLIENT_RPC_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/status.h"
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

  // Connects with the first call. `socket_path` is the daemon's gRPC socket, `token` the session's.
  Rpc(const std::string& socket_path, std::string token, std::shared_ptr<SessionState> state,
      std::shared_ptr<ProgressCalls> progress);
  ~Rpc();
  Rpc(const Rpc&) = delete;
  Rpc& operator=(const Rpc&) = delete;

  // Repeats.
  // `on_progress`, which may be empty, hears of a long one, and can cancel it (CANCELLED).
  absl::Status Register(const v1::RegisterRequest&, v1::RegisterResponse*, Duration timeout,
                        const ProgressCalls::Callback& on_progress);
  absl::Status Deregister(const v1::DeregisterRequest&, Duration timeout);
  absl::Status ReleaseBuffers(const v1::ReleaseBuffersRequest&, Duration timeout);
  absl::Status RenewLeases(const v1::RenewLeasesRequest&, v1::RenewLeasesResponse*,
                           Duration timeout);
  absl::Status ListLeases(const v1::ListLeasesRequest&, v1::ListLeasesResponse*, Duration timeout);
  absl::Status ListDevices(v1::ListDevicesResponse*, Duration timeout);
  absl::Status GetStatus(v1::GetStatusResponse*, Duration timeout);
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
  absl::Status ReloadPolicy(v1::ReloadPolicyResponse*, Duration timeout);
  absl::Status OpenDomain(const v1::OpenDomainRequest&, v1::OpenDomainResponse*, Duration timeout);
  absl::Status ListDomains(v1::ListDomainsResponse*, Duration timeout);
  absl::Status GetMetrics(v1::GetMetricsResponse*, Duration timeout);
  absl::Status ListEndpoints(v1::ListEndpointsResponse*, Duration timeout);
  absl::Status Disconnect(const v1::DisconnectRequest&, Duration timeout);

  // "Unknown" in a repeat means that the first try was done.
  absl::Status CloseDomain(const v1::CloseDomainRequest&, Duration timeout);

  // Does not repeat: those that the first try ended would be unknown to the second.
  absl::Status RevokeLeases(const v1::RevokeLeasesRequest&, v1::RevokeLeasesResponse*,
                            Duration timeout);

  // Do not repeat: each try could make an endpoint.
  absl::Status Listen(const v1::ListenRequest&, v1::ListenResponse*, Duration timeout);
  absl::Status Accept(const v1::AcceptRequest&, v1::AcceptResponse*, Duration timeout);
  absl::Status Connect(const v1::ConnectRequest&, v1::ConnectResponse*, Duration timeout);

 private:
  struct Stubs;
  struct Outcome;
  enum class Repeat { kNo, kYes };
  template <typename Try>
  Outcome Run(const char* name, Repeat repeat, Duration timeout, Try&& attempt);
  absl::Status Ended(absl::Status status, Duration left) const;

  const std::string socket_path_;
  const std::string token_;
  const std::shared_ptr<SessionState> state_;
  const std::shared_ptr<ProgressCalls> progress_;
  const std::unique_ptr<Stubs> stubs_;
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_RPC_H_
