#include "client/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include <tuple>
#include <utility>
#include <vector>

#include "client/connect_error.h"
#include "client/local_error.h"

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
void KeepForEver(AttachConnection* connection, Rpc* rpc, Renewer* renewer) {
  static auto* const kept = new std::vector<std::tuple<AttachConnection*, Rpc*, Renewer*>>;
  kept->emplace_back(connection, rpc, renewer);
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
                                                         AttachParameters parameters,
                                                         Rpc::Duration call_timeout, bool renew) {
  if (absl::Status alone = CheckNotAfterFork(); !alone.ok()) return alone;
  parameters.path = AttachPath(socket_dir, parameters.admin);
  auto state = std::make_shared<SessionState>();
  auto progress = std::make_shared<ProgressCalls>();
  parameters.on_event = [progress,
                         on_event = std::move(parameters.on_event)](const v1::AttachEvent& event) {
    if (event.kind() == v1::AttachEvent::PROGRESS) progress->Report(event.progress());
    if (on_event) on_event(event);
  };
  auto connection = AttachConnection::Attach(std::move(parameters), state);
  if (!connection.ok()) return connection.status();
  if (absl::Status callable = CheckRpcSocket(socket_dir); !callable.ok()) return callable;
  user_of_grpc = getpid();  // From here on; a failed attempt does not hinder a child.
  auto rpc = std::make_unique<Rpc>(socket_dir + "/mrd.sock", (*connection)->welcome().token(),
                                   state, std::move(progress));
  return std::shared_ptr<Session>(
      new Session(std::move(state), std::move(*connection), std::move(rpc), call_timeout, renew));
}

Session::Session(std::shared_ptr<SessionState> state, std::unique_ptr<AttachConnection> connection,
                 std::unique_ptr<Rpc> rpc, Rpc::Duration call_timeout, bool renew)
    : state_(std::move(state)),
      connection_(std::move(connection)),
      rpc_(std::move(rpc)),
      call_timeout_(call_timeout),
      request_prefix_(RandomPrefix()) {
  if (!renew) return;
  renewer_ = std::make_unique<Renewer>([this](Rpc::Duration timeout) { return Renew({}, timeout); },
                                       state_);
}

Session::~Session() {
  // The child of a fork has gRPC's memory without its threads, and would hang up its parent.
  if (state_->Forked()) KeepForEver(connection_.release(), rpc_.release(), renewer_.release());
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
