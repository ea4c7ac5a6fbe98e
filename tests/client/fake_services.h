// The daemon's gRPC services for tests: each call is counted, its token kept, and answered by what
// the test says.
#ifndef MRD_TESTS_CLIENT_FAKE_SERVICES_H_
#define MRD_TESTS_CLIENT_FAKE_SERVICES_H_

#include <grpcpp/server.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "mrd/v1/domain.grpc.pb.h"
#include "mrd/v1/endpoint.grpc.pb.h"
#include "mrd/v1/registration.grpc.pb.h"

namespace mrd::testing {

// `status` as the daemon sends it: with its ErrorDetail in grpc-status-details-bin.
grpc::Status ToGrpc(const absl::Status& status);

class FakeServices final {
 public:
  // Serves on `dir`/mrd.sock. `set` sets the answers, before any call can come.
  explicit FakeServices(const std::string& dir,
                        const std::function<void(FakeServices&)>& set = nullptr);
  ~FakeServices();

  // Answers of the calls; set before they come. `n` counts the tries from 1.
  std::function<absl::Status(int n, const v1::RegisterRequest&, v1::RegisterResponse*)> on_register;
  std::function<absl::Status(int n, const v1::DeregisterRequest&)> on_deregister;
  std::function<absl::Status(int n)> on_release;
  std::function<absl::Status(int n, v1::RenewLeasesResponse*)> on_renew;
  std::function<absl::Status(const v1::ListLeasesRequest&, v1::ListLeasesResponse*)> on_list_leases;
  std::function<absl::Status(int n)> on_listen;
  std::function<absl::Status(v1::Endpoint*)> on_accept;
  std::function<absl::Status(v1::Endpoint*)> on_connect;
  std::function<absl::Status(int n, const v1::OpenDomainRequest&)> on_open_domain;
  std::function<absl::Status(const v1::AddKeysRequest&, v1::AddKeysResponse*)> on_add_keys;

  // What has come so far.
  std::vector<v1::RegisterRequest> registers();
  std::vector<v1::DeregisterRequest> deregisters();
  std::vector<uint64_t> released();
  std::vector<std::string> tokens();
  std::vector<v1::OpenDomainRequest> domains();
  std::vector<v1::AddKeysRequest> added();
  std::vector<uint64_t> disconnected();
  int listens();
  int renewals();

 private:
  class RegistrationService;
  class EndpointsService;
  class DomainsService;

  void Note(const grpc::ServerContext& context);

  std::mutex mutex_;  // Guards what follows.
  std::vector<v1::RegisterRequest> registers_;
  std::vector<v1::DeregisterRequest> deregisters_;
  std::vector<uint64_t> released_;
  std::vector<std::string> tokens_;
  std::vector<v1::OpenDomainRequest> domains_;
  std::vector<v1::AddKeysRequest> added_;
  std::vector<uint64_t> disconnected_;
  int listens_ = 0;
  int renewals_ = 0;

  std::unique_ptr<RegistrationService> registration_;
  std::unique_ptr<EndpointsService> endpoints_;
  std::unique_ptr<DomainsService> domain_service_;
  std::unique_ptr<grpc::Server> server_;
};

// Grants every range: lease ids from 100, lkey 1, rkey 2 on device "fake0".
absl::Status GrantAll(int n, const v1::RegisterRequest& request, v1::RegisterResponse* response);

}  // namespace mrd::testing

#endif  // MRD_TESTS_CLIENT_FAKE_SERVICES_H_
