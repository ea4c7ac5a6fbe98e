// A gRPC service: its methods and how they are taken from the completion queue. One file a service
// implements it.
#ifndef MRD_DAEMON_SERVICE_SERVICE_H_
#define MRD_DAEMON_SERVICE_SERVICE_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/broker/endpoints.h"
#include "daemon/service/call.h"

namespace mrd::service {

class Service {
 public:
  explicit Service(CallEnvironment& environment) : environment_(environment) {}
  virtual ~Service() = default;

  virtual grpc::Service* generated() = 0;
  // Takes calls from this queue from now on. REQUIRES: the server runs.
  virtual void Start(grpc::ServerCompletionQueue* queue) = 0;

 protected:
  broker::Broker& broker() { return environment_.broker; }
  const CallEnvironment& environment() const { return environment_; }

  template <typename Generated, typename Base, typename Request, typename Response>
  void Take(grpc::ServerCompletionQueue* queue, Generated& generated,
            void (Base::*request)(grpc::ServerContext*, Request*,
                                  grpc::ServerAsyncResponseWriter<Response>*,
                                  grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*),
            Admission admission, typename Call<Request, Response>::Handler handle,
            bool watch_cancel = false) {
    auto method = std::make_shared<typename Call<Request, Response>::Method>();
    method->environment = &environment_;
    method->request = Request::descriptor()->name();
    method->stats = environment_.calls ? &environment_.calls->Of(MethodName<Request>()) : nullptr;
    method->admission = admission;
    method->watch_cancel = watch_cancel;
    method->accept = [&generated, request, queue](auto* context, auto* message, auto* writer,
                                                  void* tag) {
      (generated.*request)(context, message, writer, queue, queue, tag);
    };
    method->handle = std::move(handle);
    methods_.push_back(method);
    for (int i = 0; i < environment_.takers; ++i) Call<Request, Response>::Wait(method.get());
  }

  // Answers what looks into sessions: not on a thread that takes calls.
  template <typename AnyCall>
  void Elsewhere(AnyCall* call, std::function<void()> answer) {
    auto work = broker::Work::Begin(broker(), call->session());
    if (!work.ok()) return call->Finish(work.status());
    broker().registrar().SubmitCleanup(
        call->session()->owner(),
        [work = *std::move(work), answer = std::move(answer)] { answer(); });
  }

 private:
  // Each method has a request message of its own, named after it.
  template <typename Request>
  static std::string MethodName() {
    return MethodOf(Request::descriptor()->name());
  }

  CallEnvironment& environment_;
  std::vector<std::shared_ptr<void>> methods_;
};

// `endpoints` outlives it.
std::unique_ptr<Service> MakeAdminService(CallEnvironment& environment,
                                          broker::Endpoints& endpoints);
std::unique_ptr<Service> MakeDevicesService(CallEnvironment& environment);
std::unique_ptr<Service> MakeDomainsService(CallEnvironment& environment);
// `endpoints` outlives it.
std::unique_ptr<Service> MakeEndpointsService(CallEnvironment& environment,
                                              broker::Endpoints& endpoints);
std::unique_ptr<Service> MakeRegistrationService(CallEnvironment& environment);
std::unique_ptr<Service> MakeSessionsService(CallEnvironment& environment);

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_SERVICE_H_
