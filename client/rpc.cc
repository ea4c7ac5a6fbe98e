#include "client/rpc.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <random>
#include <utility>

#include "client/channel.h"
#include "client/local_error.h"
#include "client/rpc_status.h"
#include "mrd/v1/admin.grpc.pb.h"
#include "mrd/v1/device.grpc.pb.h"
#include "mrd/v1/domain.grpc.pb.h"
#include "mrd/v1/endpoint.grpc.pb.h"
#include "mrd/v1/registration.grpc.pb.h"
#include "mrd/v1/session.grpc.pb.h"
#include "mrd/v1/status.h"

namespace mrd::internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kTokenKey[] = "mrd-session-bin";
constexpr std::chrono::milliseconds kFirstPause(1);
constexpr std::chrono::milliseconds kLongestPause(250);
// How long after a broken connection the attach socket may take to tell that the daemon is gone.
constexpr std::chrono::milliseconds kHangUpGrace(200);

// Nobody knows what became of the call: the daemon itself always says a reason.
bool ConnectionBroke(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable &&
         ReasonOf(status) == v1::REASON_UNSPECIFIED;
}

// `pause`, shortened by up to a half, so that refused clients do not come back in step.
std::chrono::milliseconds Jittered(std::chrono::milliseconds pause) {
  thread_local std::minstd_rand random{std::random_device{}()};
  return pause - std::chrono::milliseconds(random() % (pause.count() / 2 + 1));
}

}  // namespace

struct Rpc::Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& channel)
      : admin(channel),
        devices(channel),
        domains(channel),
        endpoints(channel),
        registration(channel),
        sessions(channel) {}

  v1::Admin::Stub admin;
  v1::Devices::Stub devices;
  v1::Domains::Stub domains;
  v1::Endpoints::Stub endpoints;
  v1::Registration::Stub registration;
  v1::Sessions::Stub sessions;
};

struct Rpc::Outcome {
  absl::Status status;
  bool repeated;  // An earlier try may have had its effect.
};

Rpc::Rpc(const std::string& socket_path, std::string token, std::shared_ptr<SessionState> state,
         std::shared_ptr<ProgressCalls> progress)
    : socket_path_(socket_path),
      token_(std::move(token)),
      state_(std::move(state)),
      progress_(std::move(progress)),
      stubs_(std::make_unique<Stubs>(MakeChannel(socket_path))) {}

Rpc::~Rpc() = default;

// What to tell of a call whose session may have ended under it: the end says more than the broken
// connection. The attach socket's reader may be a moment behind gRPC.
absl::Status Rpc::Ended(absl::Status status, Duration left) const {
  const bool suspect = ConnectionBroke(status) || ReasonOf(status) == v1::SESSION_UNKNOWN;
  if (!suspect || !state_->WaitEnded(std::min(left, Duration(kHangUpGrace)))) return status;
  return state_->Check();
}

template <typename Try>
Rpc::Outcome Rpc::Run(const char* name, Repeat repeat, Duration timeout, Try&& attempt) {
  const auto deadline = Clock::now() + timeout;
  const auto system_deadline = std::chrono::system_clock::now() + timeout;
  const auto left = [&] {
    return std::max(Duration(0), std::chrono::ceil<Duration>(deadline - Clock::now()));
  };
  bool repeated = false;
  for (auto pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    if (absl::Status usable = state_->Check(); !usable.ok()) return {usable, repeated};
    grpc::ClientContext context;
    context.set_deadline(system_deadline);
    context.AddMetadata(kTokenKey, token_);
    const grpc::Status answer = attempt(&context);
    if (answer.ok()) return {absl::OkStatus(), repeated};
    absl::Status status = FromGrpc(answer);
    const bool broke = ConnectionBroke(status);
    if (broke) {
      status = LocalError(absl::StatusCode::kUnavailable,
                          std::string(name) + ": no connection to the daemon at " + socket_path_ +
                              " (" + answer.error_message() + ")",
                          0, "See whether mrd runs, and its log.");
    } else if (answer.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED &&
               ReasonOf(status) == v1::REASON_UNSPECIFIED) {
      status =
          LocalError(absl::StatusCode::kDeadlineExceeded,
                     std::string(name) + ": no answer from the daemon at " + socket_path_ +
                         " within " + std::to_string(timeout.count()) + " ms",
                     0, "It is overloaded or stuck, see its log; or allow the call more time.");
    }
    const bool again = ReasonOf(status) == v1::BUSY || (broke && repeat == Repeat::kYes);
    // A try that has hardly any time left would turn a clear refusal into a vague "no answer".
    if (!again || left() <= pause) return {Ended(std::move(status), left()), repeated};
    if (broke) repeated = true;
    // Wakes when the session ends: the next round then returns why.
    state_->WaitEnded(Jittered(pause));
  }
}

absl::Status Rpc::Register(const v1::RegisterRequest& request, v1::RegisterResponse* response,
                           Duration timeout, const ProgressCalls::Callback& on_progress) {
  return Run("Register", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               const ProgressCalls::Watch watch(*progress_, request.request_id(), on_progress,
                                                [context] { context->TryCancel(); });
               return stubs_->registration.Register(context, request, response);
             })
      .status;
}

absl::Status Rpc::Deregister(const v1::DeregisterRequest& request, Duration timeout) {
  const auto call = [&](const v1::DeregisterRequest& leases) {
    return Run("Deregister", Repeat::kYes, timeout, [&](grpc::ClientContext* context) {
      v1::DeregisterResponse response;
      return stubs_->registration.Deregister(context, leases, &response);
    });
  };
  const Outcome outcome = call(request);
  if (!outcome.repeated || ReasonOf(outcome.status) != v1::LEASE_UNKNOWN) return outcome.status;
  // The first try was done, most likely; or one of the ids was unknown all along and the others
  // still stand. One by one, they are gone for certain.
  for (const uint64_t lease_id : request.lease_ids()) {
    v1::DeregisterRequest one;
    one.add_lease_ids(lease_id);
    const absl::Status status = call(one).status;
    if (!status.ok() && ReasonOf(status) != v1::LEASE_UNKNOWN) return status;
  }
  return absl::OkStatus();
}

absl::Status Rpc::ReleaseBuffers(const v1::ReleaseBuffersRequest& request, Duration timeout) {
  const Outcome outcome =
      Run("ReleaseBuffers", Repeat::kYes, timeout, [&](grpc::ClientContext* context) {
        v1::ReleaseBuffersResponse response;
        return stubs_->registration.ReleaseBuffers(context, request, &response);
      });
  const bool done = outcome.repeated && ReasonOf(outcome.status) == v1::BUFFER_UNKNOWN;
  return done ? absl::OkStatus() : outcome.status;
}

absl::Status Rpc::RenewLeases(const v1::RenewLeasesRequest& request,
                              v1::RenewLeasesResponse* response, Duration timeout) {
  return Run("RenewLeases", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->registration.RenewLeases(context, request, response);
             })
      .status;
}

absl::Status Rpc::ListLeases(const v1::ListLeasesRequest& request, v1::ListLeasesResponse* response,
                             Duration timeout) {
  return Run("ListLeases", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->registration.ListLeases(context, request, response);
             })
      .status;
}

absl::Status Rpc::ListDevices(v1::ListDevicesResponse* response, Duration timeout) {
  return Run("ListDevices", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->devices.ListDevices(context, v1::ListDevicesRequest(), response);
             })
      .status;
}

absl::Status Rpc::GetStatus(v1::GetStatusResponse* response, Duration timeout) {
  return Run("GetStatus", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->sessions.GetStatus(context, v1::GetStatusRequest(), response);
             })
      .status;
}

absl::Status Rpc::ListSessions(const v1::ListSessionsRequest& request,
                               v1::ListSessionsResponse* response, Duration timeout) {
  return Run("ListSessions", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->admin.ListSessions(context, request, response);
             })
      .status;
}

absl::Status Rpc::GetMetrics(v1::GetMetricsResponse* response, Duration timeout) {
  return Run("GetMetrics", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->admin.GetMetrics(context, v1::GetMetricsRequest(), response);
             })
      .status;
}

absl::Status Rpc::ListAllLeases(const v1::ListAllLeasesRequest& request,
                                v1::ListAllLeasesResponse* response, Duration timeout) {
  return Run("ListAllLeases", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->admin.ListAllLeases(context, request, response);
             })
      .status;
}

absl::Status Rpc::ListAllEndpoints(const v1::ListAllEndpointsRequest& request,
                                   v1::ListAllEndpointsResponse* response, Duration timeout) {
  return Run("ListAllEndpoints", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->admin.ListAllEndpoints(context, request, response);
             })
      .status;
}

absl::Status Rpc::ListAllDomains(const v1::ListAllDomainsRequest& request,
                                 v1::ListAllDomainsResponse* response, Duration timeout) {
  return Run("ListAllDomains", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->admin.ListAllDomains(context, request, response);
             })
      .status;
}

absl::Status Rpc::RevokeSession(const v1::RevokeSessionRequest& request, Duration timeout) {
  return Run("RevokeSession", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               v1::RevokeSessionResponse response;
               return stubs_->admin.RevokeSession(context, request, &response);
             })
      .status;
}

absl::Status Rpc::DrainDaemon(const v1::DrainDaemonRequest& request,
                              v1::DrainDaemonResponse* response, Duration timeout) {
  return Run("DrainDaemon", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->admin.DrainDaemon(context, request, response);
             })
      .status;
}

absl::Status Rpc::UndrainDaemon(Duration timeout) {
  return Run("UndrainDaemon", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               v1::UndrainDaemonResponse response;
               return stubs_->admin.UndrainDaemon(context, v1::UndrainDaemonRequest(), &response);
             })
      .status;
}

absl::Status Rpc::ReloadPolicy(v1::ReloadPolicyResponse* response, Duration timeout) {
  return Run("ReloadPolicy", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->admin.ReloadPolicy(context, v1::ReloadPolicyRequest(), response);
             })
      .status;
}

absl::Status Rpc::RevokeLeases(const v1::RevokeLeasesRequest& request,
                               v1::RevokeLeasesResponse* response, Duration timeout) {
  return Run("RevokeLeases", Repeat::kNo, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->admin.RevokeLeases(context, request, response);
             })
      .status;
}

absl::Status Rpc::ListEndpoints(v1::ListEndpointsResponse* response, Duration timeout) {
  return Run("ListEndpoints", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->endpoints.ListEndpoints(context, v1::ListEndpointsRequest(),
                                                      response);
             })
      .status;
}

absl::Status Rpc::OpenDomain(const v1::OpenDomainRequest& request, v1::OpenDomainResponse* response,
                             Duration timeout) {
  return Run("OpenDomain", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->domains.OpenDomain(context, request, response);
             })
      .status;
}

absl::Status Rpc::ListDomains(v1::ListDomainsResponse* response, Duration timeout) {
  return Run("ListDomains", Repeat::kYes, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->domains.ListDomains(context, v1::ListDomainsRequest(), response);
             })
      .status;
}

absl::Status Rpc::CloseDomain(const v1::CloseDomainRequest& request, Duration timeout) {
  const Outcome outcome =
      Run("CloseDomain", Repeat::kYes, timeout, [&](grpc::ClientContext* context) {
        v1::CloseDomainResponse response;
        return stubs_->domains.CloseDomain(context, request, &response);
      });
  const bool done = outcome.repeated && ReasonOf(outcome.status) == v1::DOMAIN_UNKNOWN;
  return done ? absl::OkStatus() : outcome.status;
}

absl::Status Rpc::Disconnect(const v1::DisconnectRequest& request, Duration timeout) {
  const Outcome outcome =
      Run("Disconnect", Repeat::kYes, timeout, [&](grpc::ClientContext* context) {
        v1::DisconnectResponse response;
        return stubs_->endpoints.Disconnect(context, request, &response);
      });
  const bool done = outcome.repeated && ReasonOf(outcome.status) == v1::ENDPOINT_UNKNOWN;
  return done ? absl::OkStatus() : outcome.status;
}

absl::Status Rpc::Listen(const v1::ListenRequest& request, v1::ListenResponse* response,
                         Duration timeout) {
  return Run("Listen", Repeat::kNo, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->endpoints.Listen(context, request, response);
             })
      .status;
}

absl::Status Rpc::Accept(const v1::AcceptRequest& request, v1::AcceptResponse* response,
                         Duration timeout) {
  return Run("Accept", Repeat::kNo, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->endpoints.Accept(context, request, response);
             })
      .status;
}

absl::Status Rpc::Connect(const v1::ConnectRequest& request, v1::ConnectResponse* response,
                          Duration timeout) {
  return Run("Connect", Repeat::kNo, timeout,
             [&](grpc::ClientContext* context) {
               return stubs_->endpoints.Connect(context, request, response);
             })
      .status;
}

}  // namespace mrd::internal
