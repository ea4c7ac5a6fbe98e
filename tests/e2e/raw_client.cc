#include "tests/e2e/raw_client.h"

#include <grpcpp/grpcpp.h>

#include "google/protobuf/util/time_util.h"
#include "mrd/v1/admin.grpc.pb.h"
#include "mrd/v1/device.grpc.pb.h"
#include "mrd/v1/domain.grpc.pb.h"
#include "mrd/v1/endpoint.grpc.pb.h"
#include "mrd/v1/registration.grpc.pb.h"
#include "mrd/v1/session.grpc.pb.h"

namespace mrd::e2e {

v1::ErrorDetail DetailOf(const grpc::Status& status) {
  v1::Status details;
  v1::ErrorDetail detail;
  if (!status.error_details().empty() && details.ParseFromString(status.error_details()) &&
      details.details_size() == 1) {
    details.details(0).UnpackTo(&detail);
  }
  return detail;
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& dir) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  args.SetInt(GRPC_ARG_ENABLE_CHANNELZ, 0);
  args.SetMaxReceiveMessageSize(-1);
  auto channel = grpc::CreateCustomChannel("unix:" + dir + "/mrd.sock",
                                           grpc::InsecureChannelCredentials(), args);
  // At once, not with the first call: what a test counts before that call has the connection in it.
  channel->WaitForConnected(std::chrono::system_clock::now() + std::chrono::seconds(10));
  return channel;
}

struct RawClient::Stubs {
  explicit Stubs(const std::shared_ptr<grpc::Channel>& channel)
      : registration(channel),
        devices(channel),
        domains(channel),
        sessions(channel),
        endpoints(channel),
        admin(channel) {}

  v1::Registration::Stub registration;
  v1::Devices::Stub devices;
  v1::Domains::Stub domains;
  v1::Sessions::Stub sessions;
  v1::Endpoints::Stub endpoints;
  v1::Admin::Stub admin;
};

RawClient::RawClient(const std::string& dir, const Options& options)
    : dir_(dir), attach_(dir + (options.admin ? "-admin" : "") + "/attach.sock") {
  Require(attach_.SendHello(options.name, options.hello_fds), "send the hello");
  auto packet = attach_.Receive();
  if (packet && packet->has_challenge()) {
    attach_.SendAnswer(packet->challenge().nonce());
    packet = attach_.Receive();
  }
  Require(packet && packet->has_welcome(),
          "not welcomed: " + (packet ? packet->refusal().message() : "hang-up"));
  welcome_ = packet->welcome();
  token_ = welcome_.token();
  Reconnect();
  // Its connection stands from now on: what the daemon holds can be compared.
  if (options.call) Require(GetStatus().ok(), "a first call");
}

RawClient::~RawClient() = default;

void RawClient::Reconnect() { stubs_ = std::make_unique<Stubs>(MakeChannel(dir_)); }

void RawClient::Prepare(grpc::ClientContext* context, milliseconds deadline) const {
  context->set_deadline(std::chrono::system_clock::now() + deadline);
  context->set_wait_for_ready(true);
  if (!token_.empty()) context->AddMetadata("mrd-session-bin", token_);
}

template <typename Stub, typename Request, typename Response>
Answer<Response> RawClient::Do(Stub& stub,
                               grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                            Response*),
                               const Request& request) {
  Answer<Response> answer;
  grpc::ClientContext context;
  Prepare(&context);
  answer.status = (stub.*method)(&context, request, &answer.response);
  answer.detail = DetailOf(answer.status);
  return answer;
}

uint64_t RawClient::PassFd(int fd) {
  const uint64_t id = next_buffer_id_++;
  attach_.SendBuffers({id}, {fd});
  return id;
}

Answer<v1::RegisterResponse> RawClient::Register(const v1::RegisterRequest& request) {
  return Do(stubs_->registration, &v1::Registration::Stub::Register, request);
}

v1::Lease RawClient::RegisterAll(const Memory& memory) {
  const auto answer = Register(RequestFor(Pass(memory), memory));
  Require(answer.ok() && answer.response.leases_size() == 1, "register: " + answer.text());
  return answer.response.leases(0);
}

Answer<v1::DeregisterResponse> RawClient::Deregister(const std::vector<uint64_t>& lease_ids) {
  v1::DeregisterRequest request;
  request.mutable_lease_ids()->Add(lease_ids.begin(), lease_ids.end());
  return DeregisterWith(request);
}

Answer<v1::DeregisterResponse> RawClient::DeregisterWith(const v1::DeregisterRequest& request) {
  return Do(stubs_->registration, &v1::Registration::Stub::Deregister, request);
}

Answer<v1::RenewLeasesResponse> RawClient::Renew(const std::vector<uint64_t>& lease_ids) {
  v1::RenewLeasesRequest request;
  request.mutable_lease_ids()->Add(lease_ids.begin(), lease_ids.end());
  return Do(stubs_->registration, &v1::Registration::Stub::RenewLeases, request);
}

Answer<v1::ReleaseBuffersResponse> RawClient::Release(const std::vector<uint64_t>& buffer_ids) {
  v1::ReleaseBuffersRequest request;
  request.mutable_buffer_ids()->Add(buffer_ids.begin(), buffer_ids.end());
  return Do(stubs_->registration, &v1::Registration::Stub::ReleaseBuffers, request);
}

Answer<v1::ListLeasesResponse> RawClient::ListLeases(uint64_t after, uint32_t page_size) {
  v1::ListLeasesRequest request;
  request.set_after_lease_id(after);
  request.set_page_size(page_size);
  return Do(stubs_->registration, &v1::Registration::Stub::ListLeases, request);
}

Answer<v1::ListDevicesResponse> RawClient::ListDevices() {
  return Do(stubs_->devices, &v1::Devices::Stub::ListDevices, v1::ListDevicesRequest());
}

Answer<v1::GetStatusResponse> RawClient::GetStatus() {
  return Do(stubs_->sessions, &v1::Sessions::Stub::GetStatus, v1::GetStatusRequest());
}

Answer<v1::ListenResponse> RawClient::Listen(const std::string& address, uint32_t port) {
  v1::ListenRequest request;
  request.set_address(address);
  request.set_port(port);
  return Do(stubs_->endpoints, &v1::Endpoints::Stub::Listen, request);
}

Answer<v1::AcceptResponse> RawClient::Accept(uint64_t endpoint_id, milliseconds wait,
                                             const std::string& private_data) {
  v1::AcceptRequest request;
  request.set_endpoint_id(endpoint_id);
  request.set_private_data(private_data);
  *request.mutable_wait() = google::protobuf::util::TimeUtil::MillisecondsToDuration(wait.count());
  return Do(stubs_->endpoints, &v1::Endpoints::Stub::Accept, request);
}

Answer<v1::ConnectResponse> RawClient::Connect(const v1::ConnectRequest& request) {
  return Do(stubs_->endpoints, &v1::Endpoints::Stub::Connect, request);
}

Answer<v1::ConnectResponse> RawClient::Connect(const std::string& address, uint32_t port,
                                               milliseconds wait) {
  v1::ConnectRequest request;
  request.set_address(address);
  request.set_port(port);
  *request.mutable_wait() = google::protobuf::util::TimeUtil::MillisecondsToDuration(wait.count());
  return Connect(request);
}

Answer<v1::DisconnectResponse> RawClient::Disconnect(uint64_t endpoint_id) {
  v1::DisconnectRequest request;
  request.set_endpoint_id(endpoint_id);
  return Do(stubs_->endpoints, &v1::Endpoints::Stub::Disconnect, request);
}

Answer<v1::ListEndpointsResponse> RawClient::ListEndpoints() {
  return Do(stubs_->endpoints, &v1::Endpoints::Stub::ListEndpoints, v1::ListEndpointsRequest());
}

Answer<v1::OpenDomainResponse> RawClient::OpenDomain(const std::string& name) {
  v1::OpenDomainRequest request;
  request.set_name(name);
  request.set_create(true);
  return Do(stubs_->domains, &v1::Domains::Stub::OpenDomain, request);
}

Answer<v1::CloseDomainResponse> RawClient::CloseDomain(const std::string& name) {
  v1::CloseDomainRequest request;
  request.set_name(name);
  return Do(stubs_->domains, &v1::Domains::Stub::CloseDomain, request);
}

Answer<v1::ListSessionsResponse> RawClient::ListSessions(uint64_t after, uint32_t page_size) {
  v1::ListSessionsRequest request;
  request.set_after_session_id(after);
  request.set_page_size(page_size);
  return Do(stubs_->admin, &v1::Admin::Stub::ListSessions, request);
}

Answer<v1::ListAllLeasesResponse> RawClient::ListAllLeases(uint64_t session_id, uint64_t after,
                                                           uint32_t page_size) {
  v1::ListAllLeasesRequest request;
  request.set_session_id(session_id);
  request.set_after_lease_id(after);
  request.set_page_size(page_size);
  return Do(stubs_->admin, &v1::Admin::Stub::ListAllLeases, request);
}

Answer<v1::ListAllEndpointsResponse> RawClient::ListAllEndpoints(uint64_t session_id) {
  v1::ListAllEndpointsRequest request;
  request.set_session_id(session_id);
  return Do(stubs_->admin, &v1::Admin::Stub::ListAllEndpoints, request);
}

Answer<v1::ListAllDomainsResponse> RawClient::ListAllDomains() {
  return Do(stubs_->admin, &v1::Admin::Stub::ListAllDomains, v1::ListAllDomainsRequest());
}

Answer<v1::RevokeLeasesResponse> RawClient::RevokeLeases(const std::vector<uint64_t>& lease_ids,
                                                         const std::string& reason) {
  v1::RevokeLeasesRequest request;
  request.mutable_lease_ids()->Add(lease_ids.begin(), lease_ids.end());
  request.set_reason(reason);
  return Do(stubs_->admin, &v1::Admin::Stub::RevokeLeases, request);
}

Answer<v1::RevokeSessionResponse> RawClient::RevokeSession(uint64_t session_id,
                                                           const std::string& reason) {
  v1::RevokeSessionRequest request;
  request.set_session_id(session_id);
  request.set_reason(reason);
  return Do(stubs_->admin, &v1::Admin::Stub::RevokeSession, request);
}

Answer<v1::DrainDaemonResponse> RawClient::Drain(const std::string& reason, int64_t seconds) {
  v1::DrainDaemonRequest request;
  request.set_reason(reason);
  if (seconds != 0) request.mutable_deadline()->set_seconds(seconds);
  return Do(stubs_->admin, &v1::Admin::Stub::DrainDaemon, request);
}

Answer<v1::UndrainDaemonResponse> RawClient::Undrain() {
  return Do(stubs_->admin, &v1::Admin::Stub::UndrainDaemon, v1::UndrainDaemonRequest());
}

Answer<v1::ReloadPolicyResponse> RawClient::ReloadPolicy() {
  return Do(stubs_->admin, &v1::Admin::Stub::ReloadPolicy, v1::ReloadPolicyRequest());
}

Answer<v1::GetMetricsResponse> RawClient::GetMetrics() {
  return Do(stubs_->admin, &v1::Admin::Stub::GetMetrics, v1::GetMetricsRequest());
}

void AddRange(v1::RegisterRequest* request, uint64_t buffer_id, uint64_t addr, uint64_t length,
              uint64_t offset) {
  v1::Range* range = request->add_ranges();
  range->set_buffer_id(buffer_id);
  range->set_offset(offset);
  range->set_length(length);
  range->set_addr(addr);
}

v1::RegisterRequest RequestFor(uint64_t buffer_id, uint64_t addr, uint64_t length,
                               uint64_t offset) {
  v1::RegisterRequest request;
  request.mutable_access()->set_preset(v1::Access::REG_WRITE);
  AddRange(&request, buffer_id, addr, length, offset);
  return request;
}

v1::RegisterRequest RequestFor(uint64_t buffer_id, const Memory& memory) {
  return RequestFor(buffer_id, memory.addr(), memory.size());
}

}  // namespace mrd::e2e
