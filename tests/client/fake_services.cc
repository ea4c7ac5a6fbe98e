#include "tests/client/fake_services.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>

#include <chrono>

#include "mrd/v1/status.h"

namespace mrd::testing {

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message(status.message());
  const auto detail = DetailOf(status);
  if (!detail) return grpc::Status(code, message);
  v1::Status details;
  details.set_code(static_cast<int>(code));
  details.set_message(message);
  details.add_details()->PackFrom(*detail);
  return grpc::Status(code, message, details.SerializeAsString());
}

class FakeServices::RegistrationService final : public v1::Registration::Service {
 public:
  explicit RegistrationService(FakeServices* owner) : owner_(owner) {}

  grpc::Status Register(grpc::ServerContext* context, const v1::RegisterRequest* request,
                        v1::RegisterResponse* response) override {
    owner_->Note(*context);
    int n;
    {
      std::lock_guard lock(owner_->mutex_);
      owner_->registers_.push_back(*request);
      n = static_cast<int>(owner_->registers_.size());
    }
    return ToGrpc(owner_->on_register(n, *request, response));
  }

  grpc::Status Deregister(grpc::ServerContext* context, const v1::DeregisterRequest* request,
                          v1::DeregisterResponse*) override {
    owner_->Note(*context);
    int n;
    {
      std::lock_guard lock(owner_->mutex_);
      owner_->deregisters_.push_back(*request);
      n = static_cast<int>(owner_->deregisters_.size());
    }
    return ToGrpc(owner_->on_deregister ? owner_->on_deregister(n, *request) : absl::OkStatus());
  }

  grpc::Status ReleaseBuffers(grpc::ServerContext* context,
                              const v1::ReleaseBuffersRequest* request,
                              v1::ReleaseBuffersResponse*) override {
    owner_->Note(*context);
    int n;
    {
      std::lock_guard lock(owner_->mutex_);
      for (const uint64_t id : request->buffer_ids()) owner_->released_.push_back(id);
      n = static_cast<int>(owner_->released_.size());
    }
    return ToGrpc(owner_->on_release ? owner_->on_release(n) : absl::OkStatus());
  }

  grpc::Status RenewLeases(grpc::ServerContext* context, const v1::RenewLeasesRequest*,
                           v1::RenewLeasesResponse* response) override {
    owner_->Note(*context);
    int n;
    {
      std::lock_guard lock(owner_->mutex_);
      n = ++owner_->renewals_;
    }
    return ToGrpc(owner_->on_renew(n, response));
  }

  grpc::Status ListLeases(grpc::ServerContext* context, const v1::ListLeasesRequest* request,
                          v1::ListLeasesResponse* response) override {
    owner_->Note(*context);
    return ToGrpc(owner_->on_list_leases(*request, response));
  }

  grpc::Status AddKeys(grpc::ServerContext* context, const v1::AddKeysRequest* request,
                       v1::AddKeysResponse* response) override {
    owner_->Note(*context);
    {
      std::lock_guard lock(owner_->mutex_);
      owner_->added_.push_back(*request);
    }
    return ToGrpc(owner_->on_add_keys(*request, response));
  }

 private:
  FakeServices* const owner_;
};

class FakeServices::EndpointsService final : public v1::Endpoints::Service {
 public:
  explicit EndpointsService(FakeServices* owner) : owner_(owner) {}

  grpc::Status Listen(grpc::ServerContext* context, const v1::ListenRequest*,
                      v1::ListenResponse*) override {
    owner_->Note(*context);
    int n;
    {
      std::lock_guard lock(owner_->mutex_);
      n = ++owner_->listens_;
    }
    return ToGrpc(owner_->on_listen ? owner_->on_listen(n) : absl::OkStatus());
  }

  grpc::Status Accept(grpc::ServerContext* context, const v1::AcceptRequest*,
                      v1::AcceptResponse* response) override {
    owner_->Note(*context);
    return ToGrpc(owner_->on_accept(response->mutable_endpoint()));
  }

  grpc::Status Connect(grpc::ServerContext* context, const v1::ConnectRequest*,
                       v1::ConnectResponse* response) override {
    owner_->Note(*context);
    return ToGrpc(owner_->on_connect(response->mutable_endpoint()));
  }

  grpc::Status Disconnect(grpc::ServerContext* context, const v1::DisconnectRequest* request,
                          v1::DisconnectResponse*) override {
    owner_->Note(*context);
    std::lock_guard lock(owner_->mutex_);
    owner_->disconnected_.push_back(request->endpoint_id());
    return grpc::Status::OK;
  }

 private:
  FakeServices* const owner_;
};

class FakeServices::DomainsService final : public v1::Domains::Service {
 public:
  explicit DomainsService(FakeServices* owner) : owner_(owner) {}

  grpc::Status OpenDomain(grpc::ServerContext* context, const v1::OpenDomainRequest* request,
                          v1::OpenDomainResponse*) override {
    owner_->Note(*context);
    int n;
    {
      std::lock_guard lock(owner_->mutex_);
      owner_->domains_.push_back(*request);
      n = static_cast<int>(owner_->domains_.size());
    }
    return ToGrpc(owner_->on_open_domain ? owner_->on_open_domain(n, *request) : absl::OkStatus());
  }

  grpc::Status CloseDomain(grpc::ServerContext* context, const v1::CloseDomainRequest*,
                           v1::CloseDomainResponse*) override {
    owner_->Note(*context);
    return grpc::Status::OK;
  }

 private:
  FakeServices* const owner_;
};

FakeServices::FakeServices(const std::string& dir, const std::function<void(FakeServices&)>& set)
    : on_register(GrantAll),
      registration_(std::make_unique<RegistrationService>(this)),
      endpoints_(std::make_unique<EndpointsService>(this)),
      domain_service_(std::make_unique<DomainsService>(this)) {
  if (set) set(*this);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + dir + "/mrd.sock", grpc::InsecureServerCredentials());
  builder.RegisterService(registration_.get());
  builder.RegisterService(endpoints_.get());
  builder.RegisterService(domain_service_.get());
  server_ = builder.BuildAndStart();
}

FakeServices::~FakeServices() { server_->Shutdown(std::chrono::system_clock::now()); }

void FakeServices::Note(const grpc::ServerContext& context) {
  std::lock_guard lock(mutex_);
  const auto [first, last] = context.client_metadata().equal_range("mrd-session-bin");
  std::string token;
  for (auto it = first; it != last; ++it)
    token += std::string(it->second.data(), it->second.size());
  tokens_.push_back(token);
}

std::vector<v1::RegisterRequest> FakeServices::registers() {
  std::lock_guard lock(mutex_);
  return registers_;
}

std::vector<v1::DeregisterRequest> FakeServices::deregisters() {
  std::lock_guard lock(mutex_);
  return deregisters_;
}

std::vector<uint64_t> FakeServices::released() {
  std::lock_guard lock(mutex_);
  return released_;
}

std::vector<std::string> FakeServices::tokens() {
  std::lock_guard lock(mutex_);
  return tokens_;
}

std::vector<v1::OpenDomainRequest> FakeServices::domains() {
  std::lock_guard lock(mutex_);
  return domains_;
}

std::vector<v1::AddKeysRequest> FakeServices::added() {
  std::lock_guard lock(mutex_);
  return added_;
}

std::vector<uint64_t> FakeServices::disconnected() {
  std::lock_guard lock(mutex_);
  return disconnected_;
}

int FakeServices::renewals() {
  std::lock_guard lock(mutex_);
  return renewals_;
}

int FakeServices::listens() {
  std::lock_guard lock(mutex_);
  return listens_;
}

absl::Status GrantAll(int, const v1::RegisterRequest& request, v1::RegisterResponse* response) {
  uint64_t lease_id = 100;
  for (const v1::Range& range : request.ranges()) {
    v1::Lease* lease = response->add_leases();
    lease->set_lease_id(lease_id++);
    lease->set_buffer_id(range.buffer_id());
    lease->set_offset(range.offset());
    lease->set_length(range.length());
    lease->set_addr(range.addr());
    v1::Key* key = lease->add_keys();
    key->set_device("fake0");
    key->set_generation(1);
    key->set_lkey(1);
    key->set_rkey(2);
  }
  return absl::OkStatus();
}

}  // namespace mrd::testing
