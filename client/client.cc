#include "client/client.h"

#include <string>
#include <utility>

#include "client/add_keys.h"
#include "client/endpoint_state.h"
#include "client/local_error.h"
#include "client/restore.h"
#include "client/session.h"
#include "google/protobuf/util/time_util.h"

namespace mrd {

namespace {

absl::Status CheckPositive(const char* what, std::chrono::milliseconds time) {
  if (time.count() > 0) return absl::OkStatus();
  return internal::LocalError(
      absl::StatusCode::kInvalidArgument,
      "cannot attach with " + std::string(what) + " " + std::to_string(time.count()) + " ms", 0,
      std::string(what) + " must be positive.");
}

}  // namespace

absl::StatusOr<Client> Client::Attach(AttachOptions options) {
  for (const absl::Status& positive : {CheckPositive("timeout", options.timeout),
                                       CheckPositive("call_timeout", options.call_timeout)}) {
    if (!positive.ok()) return positive;
  }
  internal::SessionOptions how;
  how.attach.admin = options.admin;
  how.attach.name = std::move(options.name);
  how.attach.timeout = options.timeout;
  how.call_timeout = options.call_timeout;
  how.renew = options.renew;
  how.on_loss = options.on_loss;
  how.on_event = std::move(options.on_event);
  how.on_lost = std::move(options.on_lost);
  how.on_rekeyed = std::move(options.on_rekeyed);
  how.restore = internal::Restore;
  auto session =
      internal::Session::Attach(internal::ResolveSocketDir(options.socket_dir), std::move(how));
  if (!session.ok()) return session.status();
  return Client(std::move(*session));
}

Client::Client(std::shared_ptr<internal::Session> session) : session_(std::move(session)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

void Client::Detach() {
  if (!session_->state().Forked()) session_->Detach();
}

v1::AttachWelcome Client::welcome() const {
  if (session_->state().Forked()) return {};
  return *session_->welcome();
}

uint64_t Client::session_id() const { return welcome().session_id(); }

absl::StatusOr<Rekeyed> Client::AddKeys() const {
  Rekeyed rekeyed;
  absl::Status added = internal::AddKeys(*session_, &rekeyed);
  if (!added.ok()) return added;
  return rekeyed;
}

absl::Status Client::SessionStatus() const { return session_->state().Check(); }

absl::StatusOr<std::optional<std::chrono::nanoseconds>> Client::RenewLeases(
    std::span<const uint64_t> lease_ids) const {
  return session_->Renew(lease_ids, session_->call_timeout());
}

absl::StatusOr<std::vector<v1::Lease>> Client::ListLeases() const {
  std::vector<v1::Lease> leases;
  v1::ListLeasesRequest request;
  do {
    v1::ListLeasesResponse page;
    absl::Status status = session_->rpc().ListLeases(request, &page, session_->call_timeout());
    if (!status.ok()) return status;
    for (v1::Lease& lease : *page.mutable_leases()) leases.push_back(std::move(lease));
    request.set_after_lease_id(page.next_after_lease_id());
  } while (request.after_lease_id() != 0);
  return leases;
}

absl::StatusOr<v1::Domain> Client::OpenDomain(const std::string& name,
                                              DomainOptions options) const {
  v1::OpenDomainRequest request;
  request.set_name(name);
  request.set_create(options.create);
  request.set_mode(options.mode);
  if (options.group) request.set_group(*options.group);
  v1::OpenDomainResponse response;
  absl::Status status = session_->rpc().OpenDomain(request, &response, session_->call_timeout());
  if (!status.ok()) return status;
  session_->Opened(request);
  return std::move(*response.mutable_domain());
}

absl::Status Client::CloseDomain(const std::string& name) const {
  v1::CloseDomainRequest request;
  request.set_name(name);
  absl::Status status = session_->rpc().CloseDomain(request, session_->call_timeout());
  if (status.ok()) session_->Closed(name);
  return status;
}

absl::StatusOr<std::vector<v1::Domain>> Client::ListDomains() const {
  v1::ListDomainsResponse response;
  absl::Status status = session_->rpc().ListDomains(&response, session_->call_timeout());
  if (!status.ok()) return status;
  return std::vector<v1::Domain>(response.domains().begin(), response.domains().end());
}

absl::StatusOr<Listener> Client::Listen(const ListenOptions& options) const {
  v1::ListenRequest request;
  request.set_address(options.address);
  request.set_port(options.port);
  request.set_backlog(options.backlog);
  request.set_domain(options.domain);
  v1::ListenResponse response;
  absl::Status status = session_->rpc().Listen(request, &response, session_->call_timeout());
  if (!status.ok()) return status;
  return Listener(std::make_unique<internal::EndpointState>(
      session_, std::move(*response.mutable_endpoint()), std::string(), options.domain));
}

absl::StatusOr<Endpoint> Client::Connect(const ConnectOptions& options) const {
  v1::ConnectRequest request;
  request.set_address(options.address);
  request.set_port(options.port);
  request.set_source_address(options.source_address);
  request.set_private_data(options.private_data);
  request.set_domain(options.domain);
  *request.mutable_wait() =
      google::protobuf::util::TimeUtil::MillisecondsToDuration(options.wait.count());
  v1::ConnectResponse response;
  // A callback may destroy this client meanwhile.
  const std::shared_ptr<internal::Session> session = session_;
  absl::Status status =
      session->rpc().Connect(request, &response, options.wait + internal::kWaitSlack);
  if (!status.ok()) return status;
  auto endpoint = std::make_unique<internal::EndpointState>(
      session, std::move(*response.mutable_endpoint()), std::move(*response.mutable_private_data()),
      options.domain);
  internal::AddKeysFor(*session, endpoint->info(), options.domain);
  return Endpoint(std::move(endpoint));
}

absl::StatusOr<std::vector<v1::Endpoint>> Client::ListEndpoints() const {
  v1::ListEndpointsResponse response;
  absl::Status status = session_->rpc().ListEndpoints(&response, session_->call_timeout());
  if (!status.ok()) return status;
  return std::vector<v1::Endpoint>(response.endpoints().begin(), response.endpoints().end());
}

absl::StatusOr<std::vector<v1::Device>> Client::ListDevices() const {
  v1::ListDevicesResponse response;
  absl::Status status = session_->rpc().ListDevices(&response, session_->call_timeout());
  if (!status.ok()) return status;
  return std::vector<v1::Device>(response.devices().begin(), response.devices().end());
}

absl::StatusOr<v1::GetStatusResponse> Client::GetStatus(StatusOptions options) const {
  v1::GetStatusRequest request;
  request.set_survival(options.survival);
  v1::GetStatusResponse response;
  absl::Status status = session_->rpc().GetStatus(request, &response, session_->call_timeout());
  if (!status.ok()) return status;
  return response;
}

}  // namespace mrd
