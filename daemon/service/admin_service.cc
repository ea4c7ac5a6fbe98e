// mrd.v1.Admin.
#include "daemon/service/convert.h"
#include "daemon/service/service.h"
#include "mrd/v1/admin.grpc.pb.h"
#include "mrd/v1/status.h"

namespace mrd::service {
namespace {

class AdminService : public Service {
 public:
  using Service::Service;

  grpc::Service* generated() override { return &generated_; }

  void Start(grpc::ServerCompletionQueue* queue) override {
    using Generated = v1::Admin::AsyncService;
    Take(queue, generated_, &Generated::RequestListSessions, Admission::kAdmin,
         [this](auto* call) { ListSessions(call); });
    Take(queue, generated_, &Generated::RequestListAllLeases, Admission::kAdmin,
         [this](auto* call) { ListAllLeases(call); });
    Take(queue, generated_, &Generated::RequestGetMetrics, Admission::kAdmin,
         [this](auto* call) { GetMetrics(call); });
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

  void ListAllLeases(Call<v1::ListAllLeasesRequest, v1::ListAllLeasesResponse>* call) {
    broker::SessionRef session;
    if (call->request().session_id() != 0) {
      session = broker().SessionById(call->request().session_id());
      if (!session) {
        return call->Finish(MakeError(v1::SESSION_UNKNOWN, "no session of this id",
                                      {.advice = "ListSessions shows those there are"}));
      }
    }
    const auto page = broker().Leases(session, call->request().after_lease_id(),
                                      PageSize(call->request().page_size()));
    for (const auto& [session_id, view] : page.leases) {
      v1::HeldLease* held = call->response().add_leases();
      held->set_session_id(session_id);
      ToProto(view, held->mutable_lease());
    }
    call->response().set_next_after_lease_id(page.next);
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

  v1::Admin::AsyncService generated_;
};

}  // namespace

std::unique_ptr<Service> MakeAdminService(CallEnvironment& environment) {
  return std::make_unique<AdminService>(environment);
}

}  // namespace mrd::service
