// mrd.v1.Endpoints.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/broker/endpoints.h"
#include "daemon/service/convert.h"
#include "daemon/service/service.h"
#include "mrd/v1/endpoint.grpc.pb.h"
#include "mrd/v1/status.h"

namespace mrd::service {
namespace {

constexpr std::chrono::hours kMostAcceptWait{1};
constexpr std::chrono::minutes kMostConnectWait{1};
constexpr uint32_t kMostPort = 65535;
constexpr uint32_t kDefaultBacklog = 16;
constexpr uint32_t kMostBacklog = 128;

absl::Status CheckPort(uint32_t port, uint32_t least) {
  if (port >= least && port <= kMostPort) return absl::OkStatus();
  return MakeError(v1::ADDRESS_INVALID, absl::StrCat("port ", port),
                   {.advice = absl::StrCat("Give a port from ", least, " to ", kMostPort)});
}

class EndpointsService : public Service {
 public:
  EndpointsService(CallEnvironment& environment, broker::Endpoints& endpoints)
      : Service(environment), endpoints_(endpoints) {}

  grpc::Service* generated() override { return &generated_; }

  void Start(grpc::ServerCompletionQueue* queue) override {
    using Generated = v1::Endpoints::AsyncService;
    Take(queue, generated_, &Generated::RequestListen, Admission::kSession,
         [this](auto* call) { Listen(call); });
    Take(
        queue, generated_, &Generated::RequestAccept, Admission::kSession,
        [this](auto* call) { Accept(call); }, /*watch_cancel=*/true);
    Take(
        queue, generated_, &Generated::RequestConnect, Admission::kSession,
        [this](auto* call) { Connect(call); }, /*watch_cancel=*/true);
    Take(queue, generated_, &Generated::RequestDisconnect, Admission::kSession,
         [this](auto* call) { Disconnect(call); });
    Take(queue, generated_, &Generated::RequestListEndpoints, Admission::kSession,
         [this](auto* call) { ListEndpoints(call); });
  }

 private:
  void Listen(Call<v1::ListenRequest, v1::ListenResponse>* call) {
    const v1::ListenRequest& request = call->request();
    if (auto port = CheckPort(request.port(), 0); !port.ok()) return call->Finish(port);
    const uint32_t backlog =
        request.backlog() == 0 ? kDefaultBacklog : std::min(request.backlog(), kMostBacklog);
    endpoints_.Listen(
        call->session(),
        {request.address(), request.port(), static_cast<int>(backlog), request.domain()},
        [call](absl::StatusOr<broker::EndpointView> made) {
          if (made.ok()) ToProto(*made, call->response().mutable_endpoint());
          call->Finish(made.status());
        });
  }

  // How a call that makes a connection waits: as long as it says, within its own deadline and the
  // most.
  template <typename AnyCall>
  absl::StatusOr<broker::ConnectionWish> WishOf(AnyCall* call, std::chrono::nanoseconds most_wait) {
    const auto& request = call->request();
    auto wait = WaitFrom(request.has_wait(), "wait", request.wait(), most_wait);
    if (!wait.ok()) return wait.status();
    const auto now = std::chrono::system_clock::now();
    const auto left = call->deadline() > now + most_wait
                          ? most_wait
                          : std::chrono::nanoseconds(call->deadline() - now);
    return broker::ConnectionWish{
        .private_data = request.private_data(),
        .deadline = std::chrono::steady_clock::now() + std::min(*wait, left),
        .wanted = [call] { return !call->cancelled(); }};
  }

  template <typename AnyCall>
  static broker::EndpointDone AnswerTo(AnyCall* call) {
    return [call](absl::StatusOr<broker::EndpointView> made) {
      if (made.ok()) {
        ToProto(*made, call->response().mutable_endpoint());
        call->response().set_private_data(std::move(made->private_data));
      }
      call->Finish(made.status());
    };
  }

  void Accept(Call<v1::AcceptRequest, v1::AcceptResponse>* call) {
    auto wish = WishOf(call, kMostAcceptWait);
    if (!wish.ok()) return call->Finish(wish.status());
    endpoints_.Accept(call->session(), call->request().endpoint_id(), *std::move(wish),
                      AnswerTo(call));
  }

  void Connect(Call<v1::ConnectRequest, v1::ConnectResponse>* call) {
    const v1::ConnectRequest& request = call->request();
    if (auto port = CheckPort(request.port(), 1); !port.ok()) return call->Finish(port);
    auto wish = WishOf(call, kMostConnectWait);
    if (!wish.ok()) return call->Finish(wish.status());
    wish->domain = request.domain();
    endpoints_.Connect(call->session(), request.address(), request.port(), request.source_address(),
                       *std::move(wish), AnswerTo(call));
  }

  void Disconnect(Call<v1::DisconnectRequest, v1::DisconnectResponse>* call) {
    endpoints_.Disconnect(call->session(), call->request().endpoint_id(),
                          [call](const absl::Status& status) { call->Finish(status); });
  }

  void ListEndpoints(Call<v1::ListEndpointsRequest, v1::ListEndpointsResponse>* call) {
    for (const auto& view : endpoints_.List(call->session())) {
      ToProto(view, call->response().add_endpoints());
    }
    call->Finish(absl::OkStatus());
  }

  broker::Endpoints& endpoints_;
  v1::Endpoints::AsyncService generated_;
};

}  // namespace

std::unique_ptr<Service> MakeEndpointsService(CallEnvironment& environment,
                                              broker::Endpoints& endpoints) {
  return std::make_unique<EndpointsService>(environment, endpoints);
}

}  // namespace mrd::service
