// mrd.v1.Admin: what is there, and whose. What it changes: admin_actions.h.
#include <functional>
#include <memory>
#include <utility>

#include "daemon/service/admin_actions.h"
#include "daemon/service/convert.h"
#include "daemon/service/service.h"
#include "mrd/v1/admin.grpc.pb.h"
#include "mrd/v1/status.h"

namespace mrd::service {
namespace {

class AdminService : public Service {
 public:
  AdminService(CallEnvironment& environment, broker::Endpoints& endpoints)
      : Service(environment), endpoints_(endpoints) {}

  grpc::Service* generated() override { return &generated_; }

  void Start(grpc::ServerCompletionQueue* queue) override {
    using Generated = v1::Admin::AsyncService;
    const auto take = [&](auto request, auto handle) {
      Take(queue, generated_, request, Admission::kAdmin, handle);
    };
    take(&Generated::RequestListSessions,
         [this](auto* call) { Elsewhere(call, [=, this] { ListSessions(call); }); });
    take(&Generated::RequestListAllLeases,
         [this](auto* call) { Elsewhere(call, [=, this] { ListAllLeases(call); }); });
    take(&Generated::RequestListAllEndpoints,
         [this](auto* call) { Elsewhere(call, [=, this] { ListAllEndpoints(call); }); });
    take(&Generated::RequestListAllDomains,
         [this](auto* call) { Elsewhere(call, [=, this] { ListAllDomains(call); }); });
    take(&Generated::RequestListGenerations,
         [this](auto* call) { Elsewhere(call, [=, this] { ListGenerations(call); }); });
    take(&Generated::RequestLeaveGeneration,
         [this](auto* call) { Elsewhere(call, [=, this] { LeaveGeneration(call); }); });
    take(&Generated::RequestGetMetrics, [this](auto* call) { GetMetrics(call); });
    take(&Generated::RequestRevokeLeases, [this](auto* call) { RevokeLeases(broker(), call); });
    take(&Generated::RequestRevokeSession, [this](auto* call) { RevokeSession(broker(), call); });
    take(&Generated::RequestDrainDaemon, [this](auto* call) { DrainDaemon(broker(), call); });
    take(&Generated::RequestUndrainDaemon, [this](auto* call) { UndrainDaemon(broker(), call); });
    take(&Generated::RequestReloadPolicy,
         [this](auto* call) { ReloadPolicy(broker(), environment().reload_policy, call); });
  }

 private:
  void ListSessions(Call<v1::ListSessionsRequest, v1::ListSessionsResponse>* call) {
    const size_t most = PageSize(call->request().page_size());
    const auto views = broker().Sessions(call->request().after_session_id(), most + 1);
    for (size_t i = 0; i < views.size() && i < most; ++i) {
      ToProto(views[i], call->response().add_sessions());
    }
    if (views.size() > most) call->response().set_next_after_session_id(views[most - 1].id);
    call->Finish(absl::OkStatus());
  }

  // Null: all are meant. Errors: NO_SUCH_SESSION.
  absl::StatusOr<broker::SessionRef> SessionNamed(uint64_t id) {
    if (id == 0) return nullptr;
    if (auto session = broker().SessionById(id)) return session;
    return MakeError(v1::NO_SUCH_SESSION, absl::StrCat("no session ", id),
                     {.advice = "ListSessions (mrctl sessions) shows those there are"});
  }

  void ListAllLeases(Call<v1::ListAllLeasesRequest, v1::ListAllLeasesResponse>* call) {
    const auto session = SessionNamed(call->request().session_id());
    if (!session.ok()) return call->Finish(session.status());
    const auto page = broker().Leases(*session, call->request().after_lease_id(),
                                      PageSize(call->request().page_size()));
    for (const auto& [session_id, view] : page.leases) {
      v1::HeldLease* held = call->response().add_leases();
      held->set_session_id(session_id);
      ToProto(view, held->mutable_lease());
    }
    call->response().set_next_after_lease_id(page.next);
    call->Finish(absl::OkStatus());
  }

  void ListAllEndpoints(Call<v1::ListAllEndpointsRequest, v1::ListAllEndpointsResponse>* call) {
    const auto session = SessionNamed(call->request().session_id());
    if (!session.ok()) return call->Finish(session.status());
    const auto page = endpoints_.ListAll(*session, call->request().after_endpoint_id(),
                                         PageSize(call->request().page_size()));
    for (const auto& [session_id, view] : page.endpoints) {
      v1::HeldEndpoint* held = call->response().add_endpoints();
      held->set_session_id(session_id);
      ToProto(view, held->mutable_endpoint());
    }
    call->response().set_next_after_endpoint_id(page.next);
    call->Finish(absl::OkStatus());
  }

  void ListAllDomains(Call<v1::ListAllDomainsRequest, v1::ListAllDomainsResponse>* call) {
    const size_t most = PageSize(call->request().page_size());
    const auto domains = broker().Domains(call->request().after_name(), most + 1);
    for (size_t i = 0; i < domains.size() && i < most; ++i) {
      v1::MemberedDomain* domain = call->response().add_domains();
      ToProto(domains[i].domain, domain->mutable_domain());
      domain->set_members(domains[i].members);
    }
    if (domains.size() > most) {
      call->response().set_next_after_name(domains[most - 1].domain.name);
    }
    call->Finish(absl::OkStatus());
  }

  void ListGenerations(Call<v1::ListGenerationsRequest, v1::ListGenerationsResponse>* call) {
    for (const broker::GenerationView& view : broker::Generations(broker(), broker().All())) {
      ToProto(view, call->response().add_generations());
    }
    if (broker::ledger::Ledger* const ledger = broker().ledger()) {
      ToProto(*ledger, broker().awaited(), call->response().mutable_store());
    }
    call->Finish(absl::OkStatus());
  }

  void LeaveGeneration(Call<v1::LeaveGenerationRequest, v1::LeaveGenerationResponse>* call) {
    const v1::LeaveGenerationRequest& request = call->request();
    if (auto plain = CheckReason(request.reason()); !plain.ok()) return call->Finish(plain);
    const auto asked =
        broker::LeaveGeneration(broker(), request.device(), request.generation(), request.reason());
    if (!asked.ok()) return call->Finish(asked.status());
    call->response().set_sessions(*asked);
    call->Finish(absl::OkStatus());
  }

  void GetMetrics(Call<v1::GetMetricsRequest, v1::GetMetricsResponse>* call) {
    const TextSource& metrics = environment().metrics;
    if (!metrics) {
      return call->Finish(MakeError(v1::UNSUPPORTED, "this daemon keeps no metrics",
                                    {.advice = "Ask one that was started as mrd"}));
    }
    auto work = broker::Work::Begin(broker(), call->session());
    if (!work.ok()) return call->Finish(work.status());
    metrics([call, work = std::make_shared<broker::Work>(*std::move(work))](
                const std::shared_ptr<const std::string>& text) {
      call->response().set_text(*text);
      call->Finish(absl::OkStatus());
    });
  }

  broker::Endpoints& endpoints_;
  v1::Admin::AsyncService generated_;
};

}  // namespace

std::unique_ptr<Service> MakeAdminService(CallEnvironment& environment,
                                          broker::Endpoints& endpoints) {
  return std::make_unique<AdminService>(environment, endpoints);
}

}  // namespace mrd::service
