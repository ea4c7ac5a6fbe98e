// mrd.v1.Registration.
#include "daemon/broker/add_keys.h"
#include "daemon/service/convert.h"
#include "daemon/service/service.h"
#include "mrd/v1/registration.grpc.pb.h"

namespace mrd::service {
namespace {

constexpr std::chrono::hours kMostDrain{1};

class RegistrationService : public Service {
 public:
  using Service::Service;

  grpc::Service* generated() override { return &generated_; }

  void Start(grpc::ServerCompletionQueue* queue) override {
    using Generated = v1::Registration::AsyncService;
    Take(
        queue, generated_, &Generated::RequestRegister, Admission::kSession,
        [this](auto* call) { Register(call); }, /*watch_cancel=*/true);
    Take(queue, generated_, &Generated::RequestDeregister, Admission::kSession,
         [this](auto* call) { Deregister(call); });
    Take(queue, generated_, &Generated::RequestReleaseBuffers, Admission::kSession,
         [this](auto* call) { ReleaseBuffers(call); });
    Take(queue, generated_, &Generated::RequestRenewLeases, Admission::kAlways,
         [this](auto* call) { RenewLeases(call); });
    Take(queue, generated_, &Generated::RequestAddKeys, Admission::kSession,
         [this](auto* call) { AddKeys(call); });
    Take(queue, generated_, &Generated::RequestListLeases, Admission::kSession,
         [this](auto* call) { ListLeases(call); });
  }

 private:
  void Register(Call<v1::RegisterRequest, v1::RegisterResponse>* call) {
    auto spec = FromProto(call->request());
    if (!spec.ok()) return call->Finish(spec.status());
    spec->wanted = [call] { return !call->cancelled(); };
    broker().Register(call->session(), *std::move(spec), [call](broker::RegisterResult result) {
      if (!result.ok()) return call->Finish(result.status());
      auto* leases = call->response().mutable_leases();
      leases->Reserve(static_cast<int>((*result)->size()));
      for (const broker::LeaseView& view : **result) ToProto(view, leases->Add());
      call->Finish(absl::OkStatus());
    });
  }

  void AddKeys(Call<v1::AddKeysRequest, v1::AddKeysResponse>* call) {
    std::vector<broker::LeaseBuffer> leases;
    leases.reserve(call->request().leases_size());
    for (const v1::LeaseBuffer& each : call->request().leases()) {
      leases.push_back({each.lease_id(), each.buffer_id()});
    }
    broker::AddKeys::Start(broker(), call->session(), std::move(leases),
                           [call](broker::RegisterResult result) {
                             if (!result.ok()) return call->Finish(result.status());
                             for (const broker::LeaseView& view : **result) {
                               ToProto(view, call->response().add_leases());
                             }
                             call->Finish(absl::OkStatus());
                           });
  }

  void Deregister(Call<v1::DeregisterRequest, v1::DeregisterResponse>* call) {
    const v1::DeregisterRequest& request = call->request();
    // Sessions post no work themselves yet: there is none to wait for.
    const auto drain = WaitFrom(request.has_drain(), "drain", request.drain(), kMostDrain);
    if (!drain.ok()) return call->Finish(drain.status());
    const auto& ids = request.lease_ids();
    broker().Deregister(call->session(), {ids.begin(), ids.end()},
                        [call](const absl::Status& status) { call->Finish(status); });
  }

  void ReleaseBuffers(Call<v1::ReleaseBuffersRequest, v1::ReleaseBuffersResponse>* call) {
    const auto& ids = call->request().buffer_ids();
    broker().ReleaseBuffers(call->session(), {ids.begin(), ids.end()},
                            [call](const absl::Status& status) { call->Finish(status); });
  }

  void RenewLeases(Call<v1::RenewLeasesRequest, v1::RenewLeasesResponse>* call) {
    const auto& ids = call->request().lease_ids();
    const auto renewed = broker().Renew(*call->session(), {ids.begin(), ids.end()});
    if (!renewed.ok()) return call->Finish(renewed.status());
    call->response().set_renewed(renewed->leases);
    if (renewed->shortest_ttl) {
      ToProto(*renewed->shortest_ttl, call->response().mutable_shortest_ttl());
    }
    call->Finish(absl::OkStatus());
  }

  void ListLeases(Call<v1::ListLeasesRequest, v1::ListLeasesResponse>* call) {
    const auto page = broker().Leases(call->session(), call->request().after_lease_id(),
                                      PageSize(call->request().page_size()));
    for (const auto& [session_id, view] : page.leases) ToProto(view, call->response().add_leases());
    call->response().set_next_after_lease_id(page.next);
    call->Finish(absl::OkStatus());
  }

  v1::Registration::AsyncService generated_;
};

}  // namespace

std::unique_ptr<Service> MakeRegistrationService(CallEnvironment& environment) {
  return std::make_unique<RegistrationService>(environment);
}

}  // namespace mrd::service
