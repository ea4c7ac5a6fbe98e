#include "daemon/service/server.h"

#include <grpc/grpc.h>
#include <grpcpp/alarm.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server_posix.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "daemon/broker/endpoints.h"
#include "daemon/service/guarded_connection.h"
#include "daemon/service/service.h"
#include "spdlog/spdlog.h"

namespace mrd::service {
namespace {

constexpr int kMostMetadataBytes = 8 << 10;
// Calls on one connection, beyond those that its session may have in flight: a client library has
// one connection, and is to be told of that limit, not to wait for it.
constexpr uint32_t kSpareStreams = 64;

size_t DefaultMemory() {
  const auto all = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return std::max<size_t>(256 << 20, all / 64);
}

int PollerCount() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 2, 8);
}

// A way through the queue that every call takes. Owns itself.
class PingTag : public Tag {
 public:
  static void Put(QueueGate& gate, grpc::CompletionQueue* queue, std::function<void()> answered) {
    auto* const ping = new PingTag(std::move(answered));
    HandOver(static_cast<Tag*>(ping));
    const bool put = gate.Pass([&] {
      // Long past: then no timer of gRPC's has a part in it, and it is in the queue at once.
      ping->alarm_.Set(queue, std::chrono::system_clock::time_point(), static_cast<Tag*>(ping));
    });
    if (!put) delete ping;
  }

  void Proceed(bool) override {
    answered_();
    delete this;
  }

 private:
  explicit PingTag(std::function<void()> answered) : answered_(std::move(answered)) {}

  const std::function<void()> answered_;
  grpc::Alarm alarm_;
};

class GrpcServer : public Server {
 public:
  GrpcServer(broker::Broker& broker, ServerOptions options)
      : most_streams_(broker.limits().calls + kSpareStreams),
        memory_(options.memory != 0 ? options.memory : DefaultMemory()),
        answers_(memory_),
        environment_{broker,
                     answers_,
                     gate_,
                     PollerCount(),
                     std::move(options.observe),
                     options.admin_socket,
                     options.calls,
                     std::move(options.metrics),
                     std::move(options.reload_policy)},
        endpoints_(broker) {
    services_.push_back(MakeAdminService(environment_, endpoints_));
    services_.push_back(MakeDevicesService(environment_));
    services_.push_back(MakeDomainsService(environment_));
    services_.push_back(MakeEndpointsService(environment_, endpoints_));
    services_.push_back(MakeRegistrationService(environment_));
    services_.push_back(MakeSessionsService(environment_));

    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    for (const auto& service : services_) builder.RegisterService(service->generated());
    queue_ = builder.AddCompletionQueue();
    builder.SetMaxReceiveMessageSize(static_cast<int>(kMostMessageBytes));
    builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostMetadataBytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(most_streams_));
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                               static_cast<int>(options.idle.count()));
    // No peer of a Unix socket vanishes unseen, and a timer each of thousands of connections, which
    // gRPC looks at every second, is half of what an idle daemon costs.
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, INT_MAX);
    // Reflection alone is synchronous: a thread a stream, so few of them.
    grpc::ResourceQuota quota("mrd");
    quota.SetMaxThreads(8);
    // Of requests under way there may be many before a token is looked at: as many as there are
    // connections and streams.
    quota.Resize(memory_);
    builder.SetResourceQuota(quota);
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
    builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
    server_ = builder.BuildAndStart();

    for (const auto& service : services_) service->Start(queue_.get());
    broker.registrar().SetInlineSlots(environment_.takers - 1);
    for (int i = 0; i < environment_.takers; ++i) pollers_.emplace_back([this] { Poll(); });
  }

  void Serve(UniqueFd connection, uint32_t uid,
             std::function<void(const char*)> on_abuse) override {
    const auto dispose = [disposer = environment_.broker.disposer(), uid](UniqueFd fd) mutable {
      disposer.Close(uid, std::move(fd));
    };
    const Client client{uid, std::move(on_abuse), dispose};
    if (!Guard(connection.get(), {most_streams_, memory_ / 2}, client)) return;
    grpc::AddInsecureChannelFromFd(server_.get(), connection.release());
  }

  void Ended(int connection) override { SetOver(connection); }

  void Ping(std::function<void()> answered) override {
    PingTag::Put(gate_, queue_.get(), std::move(answered));
  }

  void Sweep() override {
    answers_.Sweep();
    ForgetOver();
  }

  void Shutdown() override {
    server_->Shutdown(std::chrono::system_clock::now());
    gate_.Shut();
    queue_->Shutdown();
    for (std::thread& poller : pollers_) poller.join();
    // Never given back: with the last one gRPC would wait for its threads, one of which may sleep
    // for ten seconds after a connection whose client did not read.
    grpc_init();
  }

 private:
  void Poll() {
    void* tag;
    bool ok;
    while (queue_->Next(&tag, &ok)) {
      TakeOver(tag);
      static_cast<Tag*>(tag)->Proceed(ok);
    }
  }

  const uint32_t most_streams_;
  const size_t memory_;
  Answers answers_;
  QueueGate gate_;
  CallEnvironment environment_;
  broker::Endpoints endpoints_;
  std::vector<std::unique_ptr<Service>> services_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::thread> pollers_;
};

}  // namespace

std::unique_ptr<Server> Server::Start(broker::Broker& broker, ServerOptions options) {
  if (!GuardsWork()) {
    spdlog::critical("recvmsg and sendmsg of this program do not reach gRPC: it is linked wrongly");
    abort();
  }
  return std::make_unique<GrpcServer>(broker, std::move(options));
}

}  // namespace mrd::service
