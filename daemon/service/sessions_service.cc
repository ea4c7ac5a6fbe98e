// mrd.v1.Sessions.
#include "daemon/service/convert.h"
#include "daemon/service/service.h"
#include "mrd/v1/session.grpc.pb.h"
#include "mrd/v1/version.h"

namespace mrd::service {
namespace {

class SessionsService : public Service {
 public:
  using Service::Service;

  grpc::Service* generated() override { return &generated_; }

  void Start(grpc::ServerCompletionQueue* queue) override {
    Take(queue, generated_, &v1::Sessions::AsyncService::RequestGetStatus, Admission::kSession,
         [this](auto* call) { GetStatus(call); });
  }

 private:
  void GetStatus(Call<v1::GetStatusRequest, v1::GetStatusResponse>* call) {
    v1::GetStatusResponse& status = call->response();
    status.set_daemon_version(kVersion);
    status.set_fabric(broker().fabric().name());
    ToProto(started_, status.mutable_start_time());
    ToProto(call->session()->View(), status.mutable_session());
    policy::ToProto(*call->session()->terms(), status.mutable_policy());
    status.mutable_policy()->set_account(call->session()->holder->account());
    for (const auto& view : broker().books().Quotas(*call->session()->holder)) {
      v1::Quota* quota = status.add_quotas();
      quota->set_name(view.name);
      quota->set_limit(view.limit);
      quota->set_used(view.used);
    }
    if (const auto drain = broker().DrainNow(); drain.drained) {
      ToProto(drain, status.mutable_drain());
    }
    if (call->session()->identity.admin) {
      const broker::Totals totals = broker().Count();
      v1::Totals* all = status.mutable_totals();
      all->set_sessions(totals.booked.sessions);
      all->set_regions(totals.booked.regions);
      all->set_pinned_bytes(totals.booked.bytes);
      all->set_endpoints(totals.booked.endpoints);
      all->set_buffers(totals.buffers);
      all->set_mapped_buffers(totals.mappings);
      all->set_connections(totals.booked.connections);
    }
    if (!call->request().survival()) return call->Finish(absl::OkStatus());
    Elsewhere(call, [=, this] {
      LookAhead(*call->session(), call->response().mutable_survival());
      call->Finish(absl::OkStatus());
    });
  }

  void LookAhead(const broker::Session& asking, v1::Survival* survival) {
    std::vector<broker::SessionRef> sessions;
    for (broker::SessionRef& each : broker().All()) {
      if (each->id == asking.id || each->identity.admin) continue;
      if (asking.identity.admin || each->user == asking.user) sessions.push_back(std::move(each));
    }
    ToProto(broker::LookAhead(broker(), sessions), survival);
    if (broker::ledger::Ledger* const ledger = broker().ledger()) {
      ToProto(*ledger, broker().awaited(), survival->mutable_store());
    }
  }

  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
  v1::Sessions::AsyncService generated_;
};

}  // namespace

std::unique_ptr<Service> MakeSessionsService(CallEnvironment& environment) {
  return std::make_unique<SessionsService>(environment);
}

}  // namespace mrd::service
