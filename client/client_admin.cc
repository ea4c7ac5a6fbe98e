// The part of Client that is for admins.
#include <utility>

#include "client/client.h"
#include "client/session.h"
#include "google/protobuf/util/time_util.h"

namespace mrd {

absl::StatusOr<std::vector<v1::Session>> Client::ListSessions() const {
  std::vector<v1::Session> sessions;
  v1::ListSessionsRequest request;
  do {
    v1::ListSessionsResponse page;
    absl::Status status = session_->rpc().ListSessions(request, &page, session_->call_timeout());
    if (!status.ok()) return status;
    for (v1::Session& session : *page.mutable_sessions()) sessions.push_back(std::move(session));
    request.set_after_session_id(page.next_after_session_id());
  } while (request.after_session_id() != 0);
  return sessions;
}

absl::StatusOr<std::string> Client::GetMetrics() const {
  v1::GetMetricsResponse response;
  absl::Status status = session_->rpc().GetMetrics(&response, session_->call_timeout());
  if (!status.ok()) return status;
  return std::move(*response.mutable_text());
}

absl::StatusOr<std::vector<v1::HeldLease>> Client::ListAllLeases(uint64_t session_id) const {
  std::vector<v1::HeldLease> leases;
  v1::ListAllLeasesRequest request;
  request.set_session_id(session_id);
  do {
    v1::ListAllLeasesResponse page;
    absl::Status status = session_->rpc().ListAllLeases(request, &page, session_->call_timeout());
    if (!status.ok()) return status;
    for (v1::HeldLease& lease : *page.mutable_leases()) leases.push_back(std::move(lease));
    request.set_after_lease_id(page.next_after_lease_id());
  } while (request.after_lease_id() != 0);
  return leases;
}

absl::StatusOr<std::vector<v1::HeldEndpoint>> Client::ListAllEndpoints(uint64_t session_id) const {
  std::vector<v1::HeldEndpoint> endpoints;
  v1::ListAllEndpointsRequest request;
  request.set_session_id(session_id);
  do {
    v1::ListAllEndpointsResponse page;
    absl::Status status =
        session_->rpc().ListAllEndpoints(request, &page, session_->call_timeout());
    if (!status.ok()) return status;
    for (auto& endpoint : *page.mutable_endpoints()) endpoints.push_back(std::move(endpoint));
    request.set_after_endpoint_id(page.next_after_endpoint_id());
  } while (request.after_endpoint_id() != 0);
  return endpoints;
}

absl::StatusOr<std::vector<v1::MemberedDomain>> Client::ListAllDomains() const {
  std::vector<v1::MemberedDomain> domains;
  v1::ListAllDomainsRequest request;
  do {
    v1::ListAllDomainsResponse page;
    absl::Status status = session_->rpc().ListAllDomains(request, &page, session_->call_timeout());
    if (!status.ok()) return status;
    for (auto& domain : *page.mutable_domains()) domains.push_back(std::move(domain));
    request.set_after_name(page.next_after_name());
  } while (!request.after_name().empty());
  return domains;
}

absl::StatusOr<v1::ListGenerationsResponse> Client::ListGenerations() const {
  v1::ListGenerationsResponse response;
  absl::Status status = session_->rpc().ListGenerations(&response, session_->call_timeout());
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<uint64_t> Client::LeaveGeneration(const std::string& device, uint64_t generation,
                                                 const std::string& reason) const {
  v1::LeaveGenerationRequest request;
  request.set_device(device);
  request.set_generation(generation);
  request.set_reason(reason);
  v1::LeaveGenerationResponse response;
  absl::Status status =
      session_->rpc().LeaveGeneration(request, &response, session_->call_timeout());
  if (!status.ok()) return status;
  return response.sessions();
}

absl::StatusOr<uint64_t> Client::RevokeLeases(std::span<const uint64_t> lease_ids,
                                              const std::string& reason) const {
  v1::RevokeLeasesRequest request;
  request.mutable_lease_ids()->Add(lease_ids.begin(), lease_ids.end());
  request.set_reason(reason);
  v1::RevokeLeasesResponse response;
  absl::Status status = session_->rpc().RevokeLeases(request, &response, session_->call_timeout());
  if (!status.ok()) return status;
  return response.revoked();
}

absl::Status Client::RevokeSession(uint64_t session_id, const std::string& reason) const {
  v1::RevokeSessionRequest request;
  request.set_session_id(session_id);
  request.set_reason(reason);
  return session_->rpc().RevokeSession(request, session_->call_timeout());
}

absl::StatusOr<v1::Drain> Client::DrainDaemon(
    const std::string& reason, std::optional<std::chrono::nanoseconds> deadline) const {
  v1::DrainDaemonRequest request;
  request.set_reason(reason);
  if (deadline) {
    *request.mutable_deadline() =
        google::protobuf::util::TimeUtil::NanosecondsToDuration(deadline->count());
  }
  v1::DrainDaemonResponse response;
  absl::Status status = session_->rpc().DrainDaemon(request, &response, session_->call_timeout());
  if (!status.ok()) return status;
  return std::move(*response.mutable_drain());
}

absl::Status Client::UndrainDaemon() const {
  return session_->rpc().UndrainDaemon(session_->call_timeout());
}

absl::StatusOr<uint32_t> Client::ReloadPolicy() const {
  v1::ReloadPolicyResponse response;
  absl::Status status = session_->rpc().ReloadPolicy(&response, session_->call_timeout());
  if (!status.ok()) return status;
  return response.rules();
}

}  // namespace mrd
