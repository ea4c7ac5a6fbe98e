#include "daemon/daemon.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "daemon/broker/broker.h"
#include "daemon/fabric/soft/soft_fabric.h"
#include "daemon/fabric/verbs/verbs_fabric.h"
#include "daemon/host/activation.h"
#include "daemon/host/fd_store.h"
#include "daemon/host/hotplug.h"
#include "daemon/host/inherited.h"
#include "daemon/host/log_sinks.h"
#include "daemon/host/metrics/counters.h"
#include "daemon/host/metrics/http_server.h"
#include "daemon/host/metrics/page.h"
#include "daemon/host/metrics/render.h"
#include "daemon/host/metrics/textfile.h"
#include "daemon/host/service_manager.h"
#include "daemon/host/status_line.h"
#include "daemon/host/watchdog.h"
#include "daemon/ipc/attach_server.h"
#include "daemon/ipc/lease_timer.h"
#include "daemon/ipc/rpc_acceptor.h"
#include "daemon/ipc/socket_dir.h"
#include "daemon/library_logs.h"
#include "daemon/log.h"
#include "daemon/policy_file.h"
#include "daemon/service/server.h"
#include "daemon/survival.h"
#include "mrd/v1/version.h"
#include "spdlog/spdlog.h"

namespace mrd {
namespace {

constexpr std::chrono::seconds kSweepEvery{1};

void StartLogging(spdlog::level::level_enum level) {
  auto logger = std::make_shared<spdlog::logger>(
      "mrd", host::StderrIsJournal() ? host::MakeJournalSink() : host::MakeTextSink());
  logger->set_level(level);
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
  TakeLibraryLogs();
}

// Each session has a few descriptors: the soft limit, made for select(2), is far too low.
void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// What `limits` come to with so many descriptors: a uid's sessions and connections, which are two
// each, and its buffers have at most half of all, its endpoints a 16th; all of them seven eighths.
broker::Limits FitDescriptors(broker::Limits limits) {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) < 0) return limits;
  const uint64_t most = files.rlim_cur;
  limits.sessions = std::min<uint64_t>(limits.sessions, most / 16);
  limits.unattached = std::min<uint64_t>(limits.unattached, most / 16);
  limits.connections = std::min<uint64_t>(limits.connections, most / 16);
  limits.endpoints = std::min<uint64_t>(limits.endpoints, most / 16);
  limits.buffers_of_uid = std::min<uint64_t>(limits.buffers_of_uid, most / 4);
  limits.descriptors = std::min<uint64_t>(limits.descriptors, most - most / 8);
  return limits;
}

// Else who is refused looks for the cause in the policy.
void WarnOfFewDescriptors(const broker::Limits& wished) {
  const broker::Limits fit = FitDescriptors(wished);
  if (fit.sessions == wished.sessions && fit.connections == wished.connections &&
      fit.endpoints == wished.endpoints && fit.buffers_of_uid == wished.buffers_of_uid) {
    return;
  }
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  spdlog::warn(
      "LimitNOFILE (ulimit -n) is {}: a user has at most {} sessions, {} connections, {} endpoints "
      "and {} buffers, whatever the policy says; the built-in limits need 131072",
      files.rlim_cur, fit.sessions, fit.connections, fit.endpoints, fit.buffers_of_uid);
}

absl::StatusOr<std::unique_ptr<fabric::Fabric>> MakeFabric(const std::string& name,
                                                           fabric::verbs::Api& verbs,
                                                           bool as_service,
                                                           uint64_t first_generation) {
  if (name == "soft") return fabric::MakeSoftFabric();
  // A service that is installed before the machine has a device, or starts before it, is to run.
  return fabric::MakeVerbsFabric(
      verbs, as_service ? fabric::NoDevice::kIsAWait : fabric::NoDevice::kIsAnError,
      first_generation);
}

void LogDevices(broker::Broker& broker) {
  for (const broker::DeviceRef& device : broker.devices().Read()) {
    log::Write(
        spdlog::level::info,
        absl::StrCat("device ", device->name, ": ", v1::Device::Transport_Name(device->transport),
                     ", ", device->active ? "active" : "down",
                     device->addresses.empty() ? "" : ", ", absl::StrJoin(device->addresses, " ")),
        log::Fields().Device(device->name));
  }
  if (broker.fabric().name() == "soft") {
    spdlog::warn(
        "fabric soft: regions and keys are real within this daemon, but no NIC knows them; "
        "for development only");
  }
}

// The parts that take connections; they go before what serves them.
struct Front {
  Front(sd_event* loop, broker::Broker& broker, service::Server& server, ipc::SocketDir& sockets,
        bool peer_pidfd, std::chrono::seconds resume_within)
      : admin(loop, broker,
              {.admin = true,
               .peer_pidfd = peer_pidfd,
               .max_message_bytes = service::kMostMessageBytes,
               .resume_within = {}},
              std::move(sockets.admin_attach)),
        attach(loop, broker,
               {.admin = false,
                .peer_pidfd = peer_pidfd,
                .max_message_bytes = service::kMostMessageBytes,
                .resume_within = resume_within},
               std::move(sockets.attach)),
        rpc(loop, broker, peer_pidfd, std::move(sockets.rpc),
            {[&server](UniqueFd connection, uint32_t user, auto on_abuse) {
               server.Serve(std::move(connection), user, std::move(on_abuse));
             },
             [&server](int connection) { server.Ended(connection); }}) {}

  ipc::AttachServer admin;
  ipc::AttachServer attach;
  ipc::RpcAcceptor rpc;
};

service::ServerOptions ServerOptionsOf(const Options& options, service::CallTable& calls,
                                       host::Page& page, PolicyFile& policy,
                                       host::ServiceManager& manager,
                                       const ipc::SocketDir& sockets) {
  service::ServerOptions server = options.server;
  server.calls = &calls;
  server.metrics = [&page](auto done) { page.Ask(std::move(done)); };
  server.reload_policy = [&policy, &manager] {
    const host::ServiceManager::Reload told(manager);
    return policy.Reload();
  };
  server.admin_socket = sockets.admin_path();
  return server;
}

// What is counted, and the ways in which it is shown; what it reads of the broker goes before it.
struct Metrics {
  Metrics(const Options& options, broker::Broker& broker, const host::Counters& counters,
          const service::CallTable& calls, host::ListenSocket socket)
      : page([&broker, &counters, &calls, started = std::chrono::system_clock::now()] {
          return host::RenderMetrics({broker, counters, calls, started});
        }) {
    if (socket.socket) {
      log::Write(spdlog::level::info, absl::StrCat("metrics are served at ", socket.where), {});
      server.emplace(page, std::move(socket), broker.disposer());
    }
    if (!options.metrics_textfile.empty()) {
      textfile.emplace(page, options.metrics_textfile, options.metrics_textfile_every);
    }
  }

  host::Page page;
  std::optional<host::HttpServer> server;
  std::optional<host::Textfile> textfile;
};

class Daemon {
 public:
  Daemon(const Options& options, v1::Policy policy, fabric::Fabric& fabric,
         fabric::verbs::Api& verbs, ipc::SocketDir& sockets, host::ListenSocket metrics_socket,
         host::ServiceManager& manager, Survival* survival, sd_event* loop)
      : loop_(loop),
        manager_(manager),
        survival_(survival),
        wished_(options.limits),
        most_ending_(options.most_ending),
        drained_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        broker_(fabric, FitDescriptors(options.limits), options.registrar_threads, counters_,
                survival != nullptr),
        lease_timer_(loop, broker_),
        adopted_(Adopt(loop)),
        policy_(std::make_shared<PolicyFile>(broker_.books(), counters_, options.config,
                                             std::move(policy), broker_.limits(),
                                             FitDescriptors(policy::Policy::Unbounded()))),
        metrics_(options, broker_, counters_, calls_, std::move(metrics_socket)),
        server_(service::Server::Start(
            broker_, ServerOptionsOf(options, calls_, metrics_.page, *policy_, manager, sockets))),
        front_(loop, broker_, *server_, sockets, options.peer_pidfd,
               survival ? broker::Adoption::kGrace : std::chrono::seconds(0)),
        on_drained_(ipc::OrDie(
            {loop, drained_.get(), EPOLLIN, [this](uint32_t) { sd_event_exit(loop_, 0); }},
            "the end")),
        sweep_(ipc::OrDie({loop, kSweepEvery, [this] { Sweep(); }}, "the clock")) {
    if (manager_.watchdog_timeout().count() > 0) {
      watchdog_.emplace(
          loop, manager_.watchdog_timeout(),
          host::Watchdog::Parts{[this](auto answer) { server_->Ping(std::move(answer)); },
                                [this] { manager_.FeedWatchdog(); }});
    }
    // The soft fabric's device stays.
    if (fabric.name() == "verbs") {
      hotplug_.emplace(loop, verbs, [this] { broker_.device_watch().Look(); });
    }
  }

  // A first signal ends in order, a second one at once.
  void OnSignal(int signal) {
    if (signal == SIGHUP) {
      // The file may lie on a file system that hangs. Errors have been logged.
      return broker_.registrar().SubmitCleanup(broker::kDaemonsOwn,
                                               [policy = policy_, &manager = manager_] {
                                                 const host::ServiceManager::Reload told(manager);
                                                 policy->Reload().IgnoreError();
                                               });
    }
    if (survival_) {
      // Nothing is ended, nor said: all of it goes on. What calls under way have made and not
      // written down yet is ended by the next run, and they are repeated.
      spdlog::info("{}: {} sessions go on in the store", strsignal(signal),
                   broker_.session_count());
      metrics_.textfile.reset();
      spdlog::default_logger()->flush();
      _exit(0);
    }
    if (broker_.draining()) {
      spdlog::error("{} again: ending at once; the kernel frees what is left", strsignal(signal));
      _exit(1);
    }
    spdlog::info("{}: ending {} sessions", strsignal(signal), broker_.session_count());
    manager_.Stopping(most_ending_);
    too_late_ = ipc::EventSource(loop_, most_ending_, [this] { GiveUpEnding(); });
    broker_.Drain([this] { eventfd_write(drained_.get(), 1); });
  }

  void TellReady(const ipc::SocketDir& sockets) {
    LogDevices(broker_);
    WarnOfFewDescriptors(wished_);
    spdlog::info("mrd {} ready: fabric {}, {} in {}", kVersion, broker_.fabric().name(),
                 sockets.given() ? "the service manager's sockets" : "sockets", sockets.dir());
    manager_.Ready(host::StatusLine(broker_));
  }

  void Shutdown() {
    // gRPC would wait for what it sends to a client that does not read, for ever.
    front_.rpc.EndAll();
    server_->Shutdown();
  }

 private:
  // Before anybody is served.
  bool Adopt(sd_event* loop) {
    if (survival_) survival_->Adopt(loop, broker_);
    return survival_ != nullptr;
  }

  void GiveUpEnding() {
    spdlog::error("{} sessions have not ended in {} ms: ending at once; the kernel frees the rest",
                  broker_.session_count(), most_ending_.count());
    _exit(1);
  }

  void Sweep() {
    server_->Sweep();
    front_.admin.Sweep();
    front_.attach.Sweep();
    broker_.session_log().Sweep();
    broker_.EndOverdue();
    manager_.SetStatus(host::StatusLine(broker_));
    sweep_.SetAgain(kSweepEvery);
  }

  sd_event* const loop_;
  host::ServiceManager& manager_;
  Survival* const survival_;  // Null: this process's end is that of all sessions.
  const broker::Limits wished_;
  const std::chrono::milliseconds most_ending_;
  const UniqueFd drained_;
  host::Counters counters_;
  service::CallTable calls_;
  broker::Broker broker_;
  ipc::LeaseTimer lease_timer_;
  const bool adopted_;
  const std::shared_ptr<PolicyFile> policy_;  // Shared with a reading under way.
  Metrics metrics_;
  const std::unique_ptr<service::Server> server_;
  Front front_;
  ipc::EventSource on_drained_;
  ipc::EventSource sweep_;
  ipc::EventSource too_late_;  // For an end in order; empty before that began.
  std::optional<host::HotPlug> hotplug_;
  std::optional<host::Watchdog> watchdog_;
};

int OnSignal(sd_event_source*, const signalfd_siginfo* info, void* daemon) {
  (*static_cast<std::optional<Daemon>*>(daemon))->OnSignal(static_cast<int>(info->ssi_signo));
  return 0;
}

// False: they are blocked, so that a signal without a source would do nothing. `daemon` is there
// once the loop runs.
bool TakeSignals(sd_event* loop, std::optional<Daemon>& daemon) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const int result = sd_event_add_signal(loop, nullptr, signal, OnSignal, &daemon);
    if (result >= 0) continue;
    spdlog::error("cannot take the signal {}: {}", strsignal(signal), strerror(-result));
    return false;
  }
  return true;
}

// The service manager's sockets, or else some of its own.
absl::StatusOr<ipc::SocketDir> OpenSockets(const Options& options,
                                           std::optional<ipc::SocketDir> given) {
  if (given) return *std::move(given);
  return ipc::SocketDir::Open(options.sockets);
}

int Run(const Options& options, fabric::verbs::Api& verbs, host::ServiceManager& manager) {
  // Debian's gRPC locks absl's mutexes, which as built there keep a graph of all locks, under one
  // lock of their own, to find cycles: a tenth of a small call.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  StartLogging(options.log_level);
  std::vector<host::InheritedFd> inherited = host::TakeInherited();
  RaiseDescriptorLimit();
  // Before any thread is started: all of them inherit the mask, and the signals go to the loop.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  auto policy = ReadPolicy(options.config);
  if (!policy.ok()) return 1;
  auto given = host::TakeSockets(inherited);
  if (!given.ok()) {
    spdlog::error("{}", std::string(given.status().message()));
    return 1;
  }
  // What is no socket of a socket unit was in the store. The soft fabric's devices end with it.
  std::unique_ptr<Survival> survival;
  if (options.store > 0 && options.fabric == "verbs") {
    survival = Survival::Open(options.store, std::move(inherited));
  } else {
    host::FdStore store(/*limit=*/0, host::NamesOf(inherited));
    host::CloseUnknown(std::move(inherited), store);
  }
  auto fabric = MakeFabric(options.fabric, verbs, /*as_service=*/given->has_value(),
                           survival ? survival->first_generation() : 1);
  if (!fabric.ok()) {
    spdlog::error("{}", std::string(fabric.status().message()));
    return 1;
  }
  // After all else that may fail: a failed start leaves no directories.
  auto sockets = OpenSockets(options, *std::move(given));
  if (!sockets.ok()) {
    spdlog::error("{}", std::string(sockets.status().message()));
    return 1;
  }
  host::ListenSocket metrics_socket;
  if (!options.metrics_listen.empty()) {
    auto opened = host::ListenSocket::Open(options.metrics_listen);
    if (!opened.ok()) {
      spdlog::error("{}", std::string(opened.status().message()));
      return 1;
    }
    metrics_socket = *std::move(opened);
  }
  sd_event* loop = nullptr;
  if (const int result = sd_event_new(&loop); result < 0) {
    spdlog::error("no main loop: {}", strerror(-result));
    return 1;
  }
  {
    std::optional<Daemon> daemon;
    // Before there is one: it takes over what an earlier run left, and returning here would end it.
    if (!TakeSignals(loop, daemon)) return 1;
    daemon.emplace(options, *std::move(policy), **fabric, verbs, *sockets,
                   std::move(metrics_socket), manager, survival.get(), loop);
    daemon->TellReady(*sockets);
    if (const int result = sd_event_loop(loop); result < 0) {
      // Sessions end in order by events of the loop only.
      spdlog::error("the main loop failed: {}; ending at once; the kernel frees what is left",
                    strerror(-result));
      _exit(1);
    }
    daemon->Shutdown();
  }
  sd_event_unref(loop);
  DropLibraryLogs();
  spdlog::info("ended");
  return 0;
}

}  // namespace

int RunDaemon(const Options& options, fabric::verbs::Api& verbs) {
  host::ServiceManager manager;
  const int status = Run(options, verbs, manager);
  if (status != 0) manager.StartFailed();
  return status;
}

}  // namespace mrd
