#include "client/rpc.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <atomic>
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

using Clock = SessionState::Clock;

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
  explicit Stubs(std::shared_ptr<grpc::Channel> made)
      : channel(std::move(made)),
        admin(channel),
        devices(channel),
        domains(channel),
        endpoints(channel),
        registration(channel),
        sessions(channel) {}

  const std::shared_ptr<grpc::Channel> channel;
  v1::Admin::Stub admin;
  v1::Devices::Stub devices;
  v1::Domains::Stub domains;
  v1::Endpoints::Stub endpoints;
  v1::Registration::Stub registration;
  v1::Sessions::Stub sessions;
};

struct Rpc::Calling {
  const char* name;
  Duration timeout;
  // Not empty: the call is not repeated, and this is what tells whether it was done.
  const char* teller = "";
  const Prepare* prepare = nullptr;
  const Restorer* restorer = nullptr;
  Gap gap = Gap::kWait;
  // Whether this side has cancelled it.
  const std::atomic<bool>* cancelled = nullptr;
};

struct Rpc::Outcome {
  absl::Status status;
  bool repeated;   // An earlier try may have had its effect.
  uint64_t epoch;  // Of the last try.
};

// A call of the restorer's, for as long as this lives.
class Rpc::Cancellable final {
 public:
  Cancellable(Rpc& rpc, grpc::ClientContext* context) : rpc_(rpc) {
    MutexLock lock(&rpc_.restoring_mutex_);
    if (rpc_.restoring_stopped_) context->TryCancel();
    rpc_.cancel_restoring_ = [context] { context->TryCancel(); };
  }
  ~Cancellable() {
    MutexLock lock(&rpc_.restoring_mutex_);
    rpc_.cancel_restoring_ = nullptr;
  }
  Cancellable(const Cancellable&) = delete;
  Cancellable& operator=(const Cancellable&) = delete;

 private:
  Rpc& rpc_;
};

Rpc::Rpc(const std::string& socket_path, std::shared_ptr<SessionState> state,
         std::shared_ptr<ProgressCalls> progress)
    : socket_path_(socket_path),
      state_(std::move(state)),
      progress_(std::move(progress)),
      stubs_(std::make_unique<Stubs>(MakeChannel(socket_path))) {}

Rpc::~Rpc() = default;

bool Rpc::DaemonIsAway(const absl::Status& status) { return ConnectionBroke(status); }

void Rpc::Reconnect() { ConnectNow(*stubs_->channel); }

void Rpc::StopRestoring() {
  MutexLock lock(&restoring_mutex_);
  restoring_stopped_ = true;
  if (cancel_restoring_) cancel_restoring_();
}

// False: there was no connection by then, or that epoch is over.
bool Rpc::AwaitChannel(uint64_t epoch, Clock::time_point until) {
  for (auto pause = kFirstPause;
       stubs_->channel->GetState(/*try_to_connect=*/true) != GRPC_CHANNEL_READY;
       pause = std::min(pause * 2, std::chrono::milliseconds(16))) {
    if (Clock::now() + pause >= until || state_->WaitChange(epoch, pause)) return false;
  }
  return true;
}

template <typename Try>
Rpc::Outcome Rpc::Run(const Calling& calling, Try&& attempt) {
  const auto deadline = Clock::now() + calling.timeout;
  const auto system_deadline = std::chrono::system_clock::now() + calling.timeout;
  const auto left = [&] {
    return std::max(Duration(0), std::chrono::ceil<Duration>(deadline - Clock::now()));
  };
  const auto no_connection = [&](const std::string& why) {
    return LocalError(absl::StatusCode::kUnavailable,
                      std::string(calling.name) + ": no connection to the daemon at " +
                          socket_path_ + " (" + why + ")",
                      0, "See whether mrd runs, and its log.");
  };
  Outcome outcome{absl::OkStatus(), false, 0};
  for (auto pause = kFirstPause;; pause = std::min(pause * 2, kLongestPause)) {
    const auto ticket = calling.restorer
                            ? calling.restorer->ticket
                            : state_->Await(calling.gap == Gap::kFail ? Clock::now() : deadline);
    if (absl::Status usable = state_->Check(); !usable.ok()) {
      return {std::move(usable), outcome.repeated, outcome.epoch};
    }
    if (!ticket) {
      // Else the last try says more.
      if (outcome.status.ok()) outcome.status = no_connection("it is being restarted, or has gone");
      return outcome;
    }
    // After a restart the pauses begin anew.
    if (std::exchange(outcome.epoch, ticket->epoch) != ticket->epoch) pause = kFirstPause;

    absl::Status status;
    std::string said;
    bool sent = false;
    if (calling.prepare && *calling.prepare) status = (*calling.prepare)(ticket->epoch);
    if (status.ok() && *calling.teller && !AwaitChannel(ticket->epoch, deadline)) {
      status = absl::UnavailableError("nobody answers there");
    }
    if (status.ok()) {
      grpc::ClientContext context;
      context.set_deadline(system_deadline);
      context.AddMetadata(kTokenKey, *ticket->token);
      sent = true;
      const grpc::Status answer = attempt(&context);
      if (answer.ok()) {
        outcome.status = absl::OkStatus();
        return outcome;
      }
      status = FromGrpc(answer);
      const bool by_us =
          calling.restorer ? restoring_stopped_.load() : calling.cancelled && *calling.cancelled;
      // gRPC's server cancels what still runs when it ends.
      if (status.code() == absl::StatusCode::kCancelled && !by_us &&
          ReasonOf(status) == v1::REASON_UNSPECIFIED) {
        status = absl::UnavailableError("the daemon ended while the call ran");
      }
    }
    const v1::Reason reason = ReasonOf(status);
    const bool broke = ConnectionBroke(status);
    if (broke) {
      said = std::string(status.message());
      status = no_connection(said);
    } else if (status.code() == absl::StatusCode::kDeadlineExceeded &&
               reason == v1::REASON_UNSPECIFIED && sent) {
      status =
          LocalError(absl::StatusCode::kDeadlineExceeded,
                     std::string(calling.name) + ": no answer from the daemon at " + socket_path_ +
                         " within " + std::to_string(calling.timeout.count()) + " ms",
                     0, "It is overloaded or stuck, see its log; or allow the call more time.");
    }
    bool again = reason == v1::BUSY || reason == v1::SESSION_AWAITED;
    if (broke && sent && *calling.teller) {
      // The end of the session says more than the broken connection; the attach socket's reader may
      // be a moment behind gRPC.
      state_->WaitChange(ticket->epoch, std::min(left(), Duration(kHangUpGrace)));
      status = state_->Check();
      if (status.ok()) {
        status = LocalError(absl::StatusCode::kUnavailable,
                            std::string(calling.name) +
                                ": the connection to the daemon broke under the call, and nobody "
                                "knows whether it had an effect (" +
                                said + ")",
                            0, std::string(calling.teller) + " tells; then call again.");
      }
    } else if (broke) {
      again = !calling.restorer || calling.restorer->alive();
    } else if (reason == v1::BUFFER_UNKNOWN) {
      again = !calling.restorer && !state_->Current(ticket->epoch);
    } else if (reason == v1::SESSION_UNKNOWN || (reason == v1::DRAINING && !state_->drained())) {
      again = !calling.restorer &&
              state_->WaitChange(ticket->epoch, std::min(left(), Duration(kHangUpGrace)));
    }
    outcome.status = std::move(status);
    // A try that has hardly any time left would turn a clear refusal into a vague "no answer".
    if (!again || left() <= pause) return outcome;
    outcome.repeated |= broke && sent;
    // Wakes when the daemon has gone or the session has ended: the next round sees to it.
    if (calling.restorer) {
      state_->WaitEnded(Jittered(pause));
    } else {
      state_->WaitChange(ticket->epoch, Jittered(pause));
    }
  }
}

template <typename Try>
absl::Status Rpc::Repeating(const char* name, Duration timeout, Try&& attempt) {
  return Run({.name = name, .timeout = timeout}, attempt).status;
}

template <typename Try>
absl::Status Rpc::Once(const char* name, Duration timeout, const char* teller, Try&& attempt) {
  return Run({.name = name, .timeout = timeout, .teller = teller}, attempt).status;
}

Rpc::Registered Rpc::Register(const v1::RegisterRequest& request, v1::RegisterResponse* response,
                              const RegisterOptions& options) {
  std::atomic<bool> cancelled = false;
  const Outcome outcome =
      Run({.name = "Register",
           .timeout = options.timeout,
           .prepare = &options.prepare,
           .restorer = options.restorer,
           .cancelled = &cancelled},
          [&](grpc::ClientContext* context) {
            const ProgressCalls::Watch watch(*progress_, request.request_id(), options.on_progress,
                                             [&cancelled, context] {
                                               cancelled = true;
                                               context->TryCancel();
                                             });
            if (!options.restorer) return stubs_->registration.Register(context, request, response);
            const Cancellable cancellable(*this, context);
            return stubs_->registration.Register(context, request, response);
          });
  return {outcome.status, outcome.epoch, outcome.repeated};
}

absl::Status Rpc::AddKeys(const v1::AddKeysRequest& request, v1::AddKeysResponse* response,
                          Duration timeout, const Prepare& prepare) {
  return Run({.name = "AddKeys", .timeout = timeout, .prepare = &prepare},
             [&](grpc::ClientContext* context) {
               return stubs_->registration.AddKeys(context, request, response);
             })
      .status;
}

absl::Status Rpc::Deregister(const v1::DeregisterRequest& request, Duration timeout, Gap gap) {
  const auto call = [&](const v1::DeregisterRequest& leases) {
    return Run({.name = "Deregister", .timeout = timeout, .gap = gap},
               [&](grpc::ClientContext* context) {
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
      Run({.name = "ReleaseBuffers", .timeout = timeout}, [&](grpc::ClientContext* context) {
        v1::ReleaseBuffersResponse response;
        return stubs_->registration.ReleaseBuffers(context, request, &response);
      });
  const bool done = outcome.repeated && ReasonOf(outcome.status) == v1::BUFFER_UNKNOWN;
  return done ? absl::OkStatus() : outcome.status;
}

absl::Status Rpc::RenewLeases(const v1::RenewLeasesRequest& request,
                              v1::RenewLeasesResponse* response, Duration timeout) {
  return Repeating("RenewLeases", timeout, [&](grpc::ClientContext* context) {
    return stubs_->registration.RenewLeases(context, request, response);
  });
}

absl::Status Rpc::ListLeases(const v1::ListLeasesRequest& request, v1::ListLeasesResponse* response,
                             Duration timeout) {
  return Repeating("ListLeases", timeout, [&](grpc::ClientContext* context) {
    return stubs_->registration.ListLeases(context, request, response);
  });
}

absl::Status Rpc::ListDevices(v1::ListDevicesResponse* response, Duration timeout) {
  return Repeating("ListDevices", timeout, [&](grpc::ClientContext* context) {
    return stubs_->devices.ListDevices(context, v1::ListDevicesRequest(), response);
  });
}

absl::Status Rpc::GetStatus(const v1::GetStatusRequest& request, v1::GetStatusResponse* response,
                            Duration timeout) {
  return Repeating("GetStatus", timeout, [&](grpc::ClientContext* context) {
    return stubs_->sessions.GetStatus(context, request, response);
  });
}

absl::Status Rpc::ListSessions(const v1::ListSessionsRequest& request,
                               v1::ListSessionsResponse* response, Duration timeout) {
  return Repeating("ListSessions", timeout, [&](grpc::ClientContext* context) {
    return stubs_->admin.ListSessions(context, request, response);
  });
}

absl::Status Rpc::GetMetrics(v1::GetMetricsResponse* response, Duration timeout) {
  return Repeating("GetMetrics", timeout, [&](grpc::ClientContext* context) {
    return stubs_->admin.GetMetrics(context, v1::GetMetricsRequest(), response);
  });
}

absl::Status Rpc::ListAllLeases(const v1::ListAllLeasesRequest& request,
                                v1::ListAllLeasesResponse* response, Duration timeout) {
  return Repeating("ListAllLeases", timeout, [&](grpc::ClientContext* context) {
    return stubs_->admin.ListAllLeases(context, request, response);
  });
}

absl::Status Rpc::ListAllEndpoints(const v1::ListAllEndpointsRequest& request,
                                   v1::ListAllEndpointsResponse* response, Duration timeout) {
  return Repeating("ListAllEndpoints", timeout, [&](grpc::ClientContext* context) {
    return stubs_->admin.ListAllEndpoints(context, request, response);
  });
}

absl::Status Rpc::ListAllDomains(const v1::ListAllDomainsRequest& request,
                                 v1::ListAllDomainsResponse* response, Duration timeout) {
  return Repeating("ListAllDomains", timeout, [&](grpc::ClientContext* context) {
    return stubs_->admin.ListAllDomains(context, request, response);
  });
}

absl::Status Rpc::RevokeSession(const v1::RevokeSessionRequest& request, Duration timeout) {
  return Repeating("RevokeSession", timeout, [&](grpc::ClientContext* context) {
    v1::RevokeSessionResponse response;
    return stubs_->admin.RevokeSession(context, request, &response);
  });
}

absl::Status Rpc::DrainDaemon(const v1::DrainDaemonRequest& request,
                              v1::DrainDaemonResponse* response, Duration timeout) {
  return Repeating("DrainDaemon", timeout, [&](grpc::ClientContext* context) {
    return stubs_->admin.DrainDaemon(context, request, response);
  });
}

absl::Status Rpc::UndrainDaemon(Duration timeout) {
  return Repeating("UndrainDaemon", timeout, [&](grpc::ClientContext* context) {
    v1::UndrainDaemonResponse response;
    return stubs_->admin.UndrainDaemon(context, v1::UndrainDaemonRequest(), &response);
  });
}

absl::Status Rpc::ListGenerations(v1::ListGenerationsResponse* response, Duration timeout) {
  return Repeating("ListGenerations", timeout, [&](grpc::ClientContext* context) {
    return stubs_->admin.ListGenerations(context, v1::ListGenerationsRequest(), response);
  });
}

absl::Status Rpc::LeaveGeneration(const v1::LeaveGenerationRequest& request,
                                  v1::LeaveGenerationResponse* response, Duration timeout) {
  return Repeating("LeaveGeneration", timeout, [&](grpc::ClientContext* context) {
    return stubs_->admin.LeaveGeneration(context, request, response);
  });
}

absl::Status Rpc::ReloadPolicy(v1::ReloadPolicyResponse* response, Duration timeout) {
  return Repeating("ReloadPolicy", timeout, [&](grpc::ClientContext* context) {
    return stubs_->admin.ReloadPolicy(context, v1::ReloadPolicyRequest(), response);
  });
}

absl::Status Rpc::RevokeLeases(const v1::RevokeLeasesRequest& request,
                               v1::RevokeLeasesResponse* response, Duration timeout) {
  return Once("RevokeLeases", timeout, "ListAllLeases", [&](grpc::ClientContext* context) {
    return stubs_->admin.RevokeLeases(context, request, response);
  });
}

absl::Status Rpc::ListEndpoints(v1::ListEndpointsResponse* response, Duration timeout) {
  return Repeating("ListEndpoints", timeout, [&](grpc::ClientContext* context) {
    return stubs_->endpoints.ListEndpoints(context, v1::ListEndpointsRequest(), response);
  });
}

absl::Status Rpc::OpenDomain(const v1::OpenDomainRequest& request, v1::OpenDomainResponse* response,
                             Duration timeout, const Restorer* restorer) {
  return Run({.name = "OpenDomain", .timeout = timeout, .restorer = restorer},
             [&](grpc::ClientContext* context) {
               if (!restorer) return stubs_->domains.OpenDomain(context, request, response);
               const Cancellable cancellable(*this, context);
               return stubs_->domains.OpenDomain(context, request, response);
             })
      .status;
}

absl::Status Rpc::ListDomains(v1::ListDomainsResponse* response, Duration timeout) {
  return Repeating("ListDomains", timeout, [&](grpc::ClientContext* context) {
    return stubs_->domains.ListDomains(context, v1::ListDomainsRequest(), response);
  });
}

absl::Status Rpc::CloseDomain(const v1::CloseDomainRequest& request, Duration timeout) {
  const Outcome outcome =
      Run({.name = "CloseDomain", .timeout = timeout}, [&](grpc::ClientContext* context) {
        v1::CloseDomainResponse response;
        return stubs_->domains.CloseDomain(context, request, &response);
      });
  const bool done = outcome.repeated && ReasonOf(outcome.status) == v1::DOMAIN_UNKNOWN;
  return done ? absl::OkStatus() : outcome.status;
}

absl::Status Rpc::Disconnect(const v1::DisconnectRequest& request, Duration timeout, Gap gap) {
  const Outcome outcome = Run({.name = "Disconnect", .timeout = timeout, .gap = gap},
                              [&](grpc::ClientContext* context) {
                                v1::DisconnectResponse response;
                                return stubs_->endpoints.Disconnect(context, request, &response);
                              });
  const bool done = outcome.repeated && ReasonOf(outcome.status) == v1::ENDPOINT_UNKNOWN;
  return done ? absl::OkStatus() : outcome.status;
}

absl::Status Rpc::Listen(const v1::ListenRequest& request, v1::ListenResponse* response,
                         Duration timeout) {
  return Once("Listen", timeout, "ListEndpoints", [&](grpc::ClientContext* context) {
    return stubs_->endpoints.Listen(context, request, response);
  });
}

absl::Status Rpc::Accept(const v1::AcceptRequest& request, v1::AcceptResponse* response,
                         Duration timeout) {
  return Once("Accept", timeout, "ListEndpoints", [&](grpc::ClientContext* context) {
    return stubs_->endpoints.Accept(context, request, response);
  });
}

absl::Status Rpc::Connect(const v1::ConnectRequest& request, v1::ConnectResponse* response,
                          Duration timeout) {
  return Once("Connect", timeout, "ListEndpoints", [&](grpc::ClientContext* context) {
    return stubs_->endpoints.Connect(context, request, response);
  });
}

}  // namespace mrd::internal
