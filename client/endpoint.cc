#include "client/endpoint.h"

#include <utility>

#include "client/add_keys.h"
#include "client/endpoint_state.h"
#include "google/protobuf/util/time_util.h"
#include "mrd/v1/status.h"

namespace mrd {

Endpoint::Endpoint(std::unique_ptr<internal::EndpointState> state) : state_(std::move(state)) {}
Endpoint::Endpoint(Endpoint&&) noexcept = default;
Endpoint& Endpoint::operator=(Endpoint&&) noexcept = default;
Endpoint::~Endpoint() = default;

uint64_t Endpoint::endpoint_id() const { return state_->info().endpoint_id(); }
const v1::Endpoint& Endpoint::info() const { return state_->info(); }
const std::string& Endpoint::peer_private_data() const { return state_->private_data(); }
absl::Status Endpoint::Disconnect() const { return state_->Disconnect(); }

absl::StatusOr<v1::Endpoint::State> Endpoint::State() const {
  if (absl::Status there = state_->Check(); !there.ok()) return there;
  internal::Session& session = *state_->session();
  v1::ListEndpointsResponse response;
  absl::Status status = session.rpc().ListEndpoints(&response, session.call_timeout());
  if (!status.ok()) return status;
  for (const v1::Endpoint& endpoint : response.endpoints()) {
    if (endpoint.endpoint_id() == endpoint_id()) return endpoint.state();
  }
  return v1::Endpoint::DISCONNECTED;
}

Listener::Listener(std::unique_ptr<internal::EndpointState> state) : state_(std::move(state)) {}
Listener::Listener(Listener&&) noexcept = default;
Listener& Listener::operator=(Listener&&) noexcept = default;
Listener::~Listener() = default;

const v1::Endpoint& Listener::info() const { return state_->info(); }
absl::Status Listener::Close() const { return state_->Disconnect(); }

absl::StatusOr<Endpoint> Listener::Accept(std::string_view private_data,
                                          std::chrono::milliseconds wait) const {
  // The connection's too.
  const std::shared_ptr<internal::Session> session = state_->session();
  if (absl::Status there = state_->Check(); !there.ok()) return there;
  v1::AcceptRequest request;
  request.set_endpoint_id(state_->info().endpoint_id());
  request.set_private_data(private_data.data(), private_data.size());
  *request.mutable_wait() = google::protobuf::util::TimeUtil::MillisecondsToDuration(wait.count());
  v1::AcceptResponse response;
  absl::Status status = session->rpc().Accept(request, &response, wait + internal::kWaitSlack);
  if (!status.ok()) {
    // That says more than that a connection broke.
    const absl::Status there = state_->Check();
    return there.ok() ? status : there;
  }
  const std::string domain = state_->domain();
  auto endpoint = std::make_unique<internal::EndpointState>(
      session, std::move(*response.mutable_endpoint()), std::move(*response.mutable_private_data()),
      domain);
  internal::AddKeysFor(*session, endpoint->info(), domain);
  return Endpoint(std::move(endpoint));
}

}  // namespace mrd
