// A session made by hand: the attach protocol and the generated gRPC stubs, nothing of the client
// library. This process is the client.
#ifndef MRD_TESTS_E2E_RAW_CLIENT_H_
#define MRD_TESTS_E2E_RAW_CLIENT_H_

#include <grpcpp/support/status.h>

#include <memory>
#include <string>
#include <vector>

#include "mrd/v1/admin.pb.h"
#include "mrd/v1/device.pb.h"
#include "mrd/v1/domain.pb.h"
#include "mrd/v1/endpoint.pb.h"
#include "mrd/v1/registration.pb.h"
#include "mrd/v1/session.pb.h"
#include "tests/e2e/attach_socket.h"
#include "tests/e2e/memory.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace mrd::e2e {

// What a call came to.
template <typename Response>
struct Answer {
  grpc::Status status;
  Response response;
  v1::ErrorDetail detail;  // Of a refusal; empty where there is none.

  bool ok() const { return status.ok(); }
  v1::Reason reason() const { return detail.reason(); }
  // For messages of tests.
  std::string text() const { return status.error_message() + " " + detail.ShortDebugString(); }
};

v1::ErrorDetail DetailOf(const grpc::Status& status);

// A channel with a connection of its own.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& dir);

// Calls may be made from several threads at once.
class RawClient {
 public:
  struct Options {
    bool admin = false;
    std::string name = "test";
    std::vector<int> hello_fds = {};
    bool call = true;  // Makes a first call, and with it the gRPC connection.
  };

  // Attaches to the daemon in `dir`. REQUIRES: it is admitted.
  RawClient(const std::string& dir, const Options& options);
  explicit RawClient(const std::string& dir) : RawClient(dir, Options()) {}
  ~RawClient();

  const v1::AttachWelcome& welcome() const { return welcome_; }
  uint64_t session_id() const { return welcome_.session_id(); }
  AttachSocket& attach() { return attach_; }
  // What is sent as metadata mrd-session-bin; empty: nothing.
  void set_token(const std::string& token) { token_ = token; }
  const std::string& token() const { return token_; }
  // The gRPC connection is closed and made anew with the next call.
  void Reconnect();
  // Ends the session, and closes the gRPC connection.
  void HangUp() {
    attach_.Close();
    Reconnect();
  }

  // Passes it as a new buffer.
  uint64_t Pass(const Memory& memory) { return PassFd(memory.fd()); }
  uint64_t PassFd(int fd);

  Answer<v1::RegisterResponse> Register(const v1::RegisterRequest& request);
  // All of it, as reg_write on the first device. REQUIRES: it is registered.
  v1::Lease RegisterAll(const Memory& memory);
  Answer<v1::DeregisterResponse> Deregister(const std::vector<uint64_t>& lease_ids);
  Answer<v1::DeregisterResponse> DeregisterWith(const v1::DeregisterRequest& request);
  // Without ids: all of the session's.
  Answer<v1::RenewLeasesResponse> Renew(const std::vector<uint64_t>& lease_ids = {});
  Answer<v1::ReleaseBuffersResponse> Release(const std::vector<uint64_t>& buffer_ids);
  Answer<v1::ListLeasesResponse> ListLeases(uint64_t after = 0, uint32_t page_size = 0);
  Answer<v1::ListDevicesResponse> ListDevices();
  Answer<v1::GetStatusResponse> GetStatus();
  Answer<v1::ListenResponse> Listen(const std::string& address, uint32_t port = 0);
  Answer<v1::AcceptResponse> Accept(uint64_t endpoint_id, milliseconds wait,
                                    const std::string& private_data = "");
  Answer<v1::ConnectResponse> Connect(const v1::ConnectRequest& request);
  Answer<v1::ConnectResponse> Connect(const std::string& address, uint32_t port,
                                      milliseconds wait = kPatience);
  Answer<v1::DisconnectResponse> Disconnect(uint64_t endpoint_id);
  Answer<v1::ListEndpointsResponse> ListEndpoints();
  // Made where there is none of this name, for its owner alone.
  Answer<v1::OpenDomainResponse> OpenDomain(const std::string& name);
  Answer<v1::CloseDomainResponse> CloseDomain(const std::string& name);
  Answer<v1::ListSessionsResponse> ListSessions(uint64_t after = 0, uint32_t page_size = 0);
  Answer<v1::ListAllLeasesResponse> ListAllLeases(uint64_t session_id = 0, uint64_t after = 0,
                                                  uint32_t page_size = 0);

  Answer<v1::ListAllEndpointsResponse> ListAllEndpoints(uint64_t session_id = 0);
  Answer<v1::ListAllDomainsResponse> ListAllDomains();
  Answer<v1::RevokeLeasesResponse> RevokeLeases(const std::vector<uint64_t>& lease_ids,
                                                const std::string& reason = "");
  Answer<v1::RevokeSessionResponse> RevokeSession(uint64_t session_id,
                                                  const std::string& reason = "");
  // `seconds` of 0: without a deadline.
  Answer<v1::DrainDaemonResponse> Drain(const std::string& reason = "", int64_t seconds = 0);
  Answer<v1::UndrainDaemonResponse> Undrain();
  Answer<v1::ReloadPolicyResponse> ReloadPolicy();
  Answer<v1::GetMetricsResponse> GetMetrics();

  // Sets the deadline and the token.
  void Prepare(grpc::ClientContext* context, milliseconds deadline = seconds(60)) const;

 private:
  struct Stubs;  // Their headers are long to compile.

  template <typename Stub, typename Request, typename Response>
  Answer<Response> Do(Stub& stub,
                      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                      const Request& request);

  const std::string dir_;
  AttachSocket attach_;
  v1::AttachWelcome welcome_;
  std::string token_;
  uint64_t next_buffer_id_ = 1;
  std::unique_ptr<Stubs> stubs_;
};

// The parameters of a registration of one range, with access reg_write.
v1::RegisterRequest RequestFor(uint64_t buffer_id, uint64_t addr, uint64_t length,
                               uint64_t offset = 0);
v1::RegisterRequest RequestFor(uint64_t buffer_id, const Memory& memory);
void AddRange(v1::RegisterRequest* request, uint64_t buffer_id, uint64_t addr, uint64_t length,
              uint64_t offset = 0);

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_RAW_CLIENT_H_
