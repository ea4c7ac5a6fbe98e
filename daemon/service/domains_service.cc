// mrd.v1.Domains.
#include "daemon/service/convert.h"
#include "daemon/service/service.h"
#include "mrd/v1/domain.grpc.pb.h"

namespace mrd::service {
namespace {

class DomainsService : public Service {
 public:
  using Service::Service;

  grpc::Service* generated() override { return &generated_; }

  void Start(grpc::ServerCompletionQueue* queue) override {
    using Generated = v1::Domains::AsyncService;
    Take(queue, generated_, &Generated::RequestOpenDomain, Admission::kSession,
         [this](auto* call) { OpenDomain(call); });
    Take(queue, generated_, &Generated::RequestCloseDomain, Admission::kSession,
         [this](auto* call) { CloseDomain(call); });
    Take(queue, generated_, &Generated::RequestListDomains, Admission::kSession,
         [this](auto* call) { ListDomains(call); });
  }

 private:
  void OpenDomain(Call<v1::OpenDomainRequest, v1::OpenDomainResponse>* call) {
    const v1::OpenDomainRequest& request = call->request();
    const auto opened = broker().OpenDomain(*call->session(), {.name = request.name(),
                                                               .create = request.create(),
                                                               .mode = request.mode(),
                                                               .group_given = request.has_group(),
                                                               .group = request.group()});
    if (opened.ok()) ToProto(*opened, call->response().mutable_domain());
    call->Finish(opened.status());
  }

  void CloseDomain(Call<v1::CloseDomainRequest, v1::CloseDomainResponse>* call) {
    broker().CloseDomain(call->session(), call->request().name(),
                         [call](const absl::Status& status) { call->Finish(status); });
  }

  void ListDomains(Call<v1::ListDomainsRequest, v1::ListDomainsResponse>* call) {
    for (const auto& view : broker().named_domains().List(call->session()->identity)) {
      ToProto(view, call->response().add_domains());
    }
    call->Finish(absl::OkStatus());
  }

  v1::Domains::AsyncService generated_;
};

}  // namespace

std::unique_ptr<Service> MakeDomainsService(CallEnvironment& environment) {
  return std::make_unique<DomainsService>(environment);
}

}  // namespace mrd::service
