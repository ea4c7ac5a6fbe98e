#include "client/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "client/connect_error.h"
#include "client/local_error.h"
#include "mrd/v1/status.h"

namespace mrd::internal {
namespace {

constexpr char kDefaultSocketDir[] = "/run/mrd";

std::string RandomPrefix() {
  uint64_t random = 0;
  // Needs no check: 8 bytes are never cut short, and request ids are per session anyway.
  (void)!getrandom(&random, sizeof(random), 0);
  char text[20];
  snprintf(text, sizeof(text), "%016lx-", static_cast<unsigned long>(random));
  return text;
}

// Keeps what a forked child must not destroy, reachable so that leak checkers see it is wanted.
void KeepForEver(AttachConnection* connection, Callbacks* callbacks, Rpc* rpc, Renewer* renewer,
                 Keeper* keeper) {
  static auto* const kept =
      new std::vector<std::tuple<AttachConnection*, Callbacks*, Rpc*, Renewer*, Keeper*>>;
  kept->emplace_back(connection, callbacks, rpc, renewer, keeper);
}

// gRPC cannot be used on both sides of a fork: its epoll instance is shared with the child, whose
// connections would be reported to the parent, as pointers into the child's memory (seen: the
// parent hangs or aborts). So the first process that attaches is the only one.
std::atomic<pid_t> user_of_grpc = 0;

absl::Status CheckNotAfterFork() {
  const pid_t first = user_of_grpc.load();
  if (first == 0 || first == getpid()) return absl::OkStatus();
  return LocalError(absl::StatusCode::kFailedPrecondition,
                    "cannot attach: process " + std::to_string(first) +
                        " attached before it forked this one, and gRPC works in one of them only",
                    0, kForkAdvice);
}

}  // namespace

std::string ResolveSocketDir(const std::string& socket_dir) {
  std::string dir = socket_dir;
  if (dir.empty()) {
    const char* env = secure_getenv("MRD_SOCKET_DIR");
    dir = env && *env ? env : kDefaultSocketDir;
  }
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

std::string AttachPath(const std::string& socket_dir, bool admin) {
  return socket_dir + (admin ? "-admin/attach.sock" : "/attach.sock");
}

absl::StatusOr<std::shared_ptr<Session>> Session::Attach(const std::string& socket_dir,
                                                         SessionOptions options) {
  if (absl::Status alone = CheckNotAfterFork(); !alone.ok()) return alone;
  options.attach.path = AttachPath(socket_dir, options.attach.admin);
  auto attached = AttachOnce(options.attach);
  if (!attached.ok()) return attached.status();
  if (absl::Status callable = CheckRpcSocket(socket_dir); !callable.ok()) return callable;
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) {
    return LocalError(absl::StatusCode::kResourceExhausted, "cannot make an eventfd", errno,
                      "Raise the limit of open files (ulimit -n) of this process.");
  }
  user_of_grpc = getpid();  // From here on; a failed attempt does not hinder a child.
  auto state = std::make_shared<SessionState>();
  const v1::AttachWelcome welcome = attached->welcome;
  std::shared_ptr<Session> session(
      new Session(std::move(options), std::move(state), socket_dir + "/mrd.sock"));
  session->connection_->Install(session->state_->NextEpoch(), std::move(*attached));
  session->Connected(welcome);
  session->keeper_ = std::make_unique<Keeper>(*session, welcome, std::move(stop));
  return session;
}

Session::Session(SessionOptions options, std::shared_ptr<SessionState> state,
                 const std::string& rpc_path)
    : options_(std::make_shared<const SessionOptions>(std::move(options))),
      state_(std::move(state)),
      progress_(std::make_shared<ProgressCalls>()),
      connection_(std::make_unique<AttachConnection>()),
      callbacks_(std::make_unique<Callbacks>()),
      rpc_(std::make_unique<Rpc>(rpc_path, state_, progress_)),
      request_prefix_(RandomPrefix()) {
  if (!options_->renew) return;
  renewer_ = std::make_unique<Renewer>([this](Rpc::Duration timeout) { return Renew({}, timeout); },
                                       state_);
}

Session::~Session() {
  // The child of a fork has gRPC's memory without its threads, and would hang up its parent.
  if (state_->Forked()) {
    KeepForEver(connection_.release(), callbacks_.release(), rpc_.release(), renewer_.release(),
                keeper_.release());
    return;
  }
  Detach();
  keeper_.reset();
  renewer_.reset();
  callbacks_.reset();
}

void Session::Detach() {
  state_->End(MakeError(v1::SESSION_UNKNOWN, "the session was detached by this process",
                        {.advice = "Attach anew."}));
  callbacks_->Close();
  if (keeper_) keeper_->Stop();
  connection_->HangUp();
  rpc_->StopRestoring();
}

std::shared_ptr<const v1::AttachWelcome> Session::welcome() const {
  MutexLock lock(&mutex_);
  return welcome_;
}

bool Session::Welcomed(const v1::AttachWelcome& welcome) {
  auto shown = std::make_shared<v1::AttachWelcome>(welcome);
  shown->clear_token();  // So that nobody prints it by accident.
  MutexLock lock(&mutex_);
  return std::exchange(welcome_, std::move(shown)) == nullptr;
}

void Session::Connected(const v1::AttachWelcome& welcome) {
  const bool first = Welcomed(welcome);
  if (!first) {
    reconnections_.fetch_add(1, std::memory_order_relaxed);
    rpc_->Reconnect();
  }
  state_->Connect(welcome.token());
  // Time went on for leases while the daemon was away.
  if (!first && renewer_) renewer_->RenewNow();
  EndLeftovers();
}

void Session::LeaveLease(uint64_t lease_id) {
  leftovers_.AddLease(lease_id);
  // It may have come back just before.
  if (state_->epoch() % 2 == 0) EndLeftovers();
}

void Session::LeaveEndpoint(uint64_t endpoint_id) {
  leftovers_.AddEndpoint(endpoint_id);
  if (state_->epoch() % 2 == 0) EndLeftovers();
}

void Session::EndLeftovers() {
  if (leftovers_.empty()) return;
  // That thread has ended, or runs nothing any more, before this has.
  callbacks_->Post([this] {
    const size_t most = std::max<size_t>(this->welcome()->limits().max_ranges_per_call(), 1);
    leftovers_.End(*rpc_, most, call_timeout());
  });
}

bool Session::Restore(const v1::AttachWelcome& welcome, uint64_t epoch, Rekeyed* rekeyed) {
  Welcomed(welcome);
  leftovers_.Drop();
  rpc_->Reconnect();
  Rpc::Restorer restorer;
  restorer.ticket = {epoch, std::make_shared<const std::string>(welcome.token())};
  restorer.alive = [this] { return !connection_->HungUp(); };
  return !options_->restore || options_->restore(*this, restorer, rekeyed);
}

void Session::Tell(const v1::AttachEvent& event) {
  const bool progress = event.kind() == v1::AttachEvent::PROGRESS;
  if (!progress && !options_->on_event) return;
  callbacks_->Post([options = options_, calls = progress_, progress, event] {
    if (progress) calls->Report(event.progress());
    if (options->on_event) options->on_event(event);
  });
}

void Session::TellLost(const absl::Status& why) {
  if (!options_->on_lost) return;
  callbacks_->Post([options = options_, why] { options->on_lost(why); });
}

void Session::TellRekeyed(Rekeyed rekeyed) {
  // An admin session holds nothing, so that nothing has changed for it.
  if (!options_->on_rekeyed || options_->attach.admin) return;
  callbacks_->Post(
      [options = options_, rekeyed = std::move(rekeyed)] { options->on_rekeyed(rekeyed); });
}

void Session::Opened(const v1::OpenDomainRequest& domain) {
  MutexLock lock(&mutex_);
  domains_.insert_or_assign(domain.name(), domain);
}

void Session::Closed(const std::string& domain) {
  MutexLock lock(&mutex_);
  domains_.erase(domain);
}

std::vector<v1::OpenDomainRequest> Session::domains() const {
  std::vector<v1::OpenDomainRequest> domains;
  MutexLock lock(&mutex_);
  for (const auto& [name, domain] : domains_) domains.push_back(domain);
  return domains;
}

absl::StatusOr<std::optional<Renewer::Ttl>> Session::Renew(std::span<const uint64_t> lease_ids,
                                                           Rpc::Duration timeout) {
  v1::RenewLeasesRequest request;
  request.mutable_lease_ids()->Add(lease_ids.begin(), lease_ids.end());
  v1::RenewLeasesResponse response;
  if (absl::Status renewed = rpc_->RenewLeases(request, &response, timeout); !renewed.ok()) {
    return renewed;
  }
  if (!response.has_shortest_ttl()) return std::nullopt;
  return std::chrono::seconds(response.shortest_ttl().seconds()) +
         Renewer::Ttl(response.shortest_ttl().nanos());
}

std::string Session::NewRequestId() {
  return request_prefix_ + std::to_string(next_request_.fetch_add(1, std::memory_order_relaxed));
}

}  // namespace mrd::internal
