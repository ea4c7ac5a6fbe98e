#include "daemon/service/admin_actions.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/log.h"
#include "daemon/service/convert.h"
#include "mrd/v1/status.h"

namespace mrd::service {
namespace {

constexpr std::chrono::hours kMostDeadline{24 * 365};
// It goes out twice, encoded, in metadata, of which a client takes 8 KiB.
constexpr size_t kMostProblemBytes = 2000;

// Whole lines of it.
std::string Shortened(std::string text) {
  if (text.size() <= kMostProblemBytes) return text;
  const size_t end = text.rfind('\n', kMostProblemBytes);
  text.resize(end == text.npos ? kMostProblemBytes : end);
  return text + "\nand more";
}

}  // namespace

void RevokeLeases(broker::Broker& broker,
                  Call<v1::RevokeLeasesRequest, v1::RevokeLeasesResponse>* call) {
  const v1::RevokeLeasesRequest& request = call->request();
  if (auto reason = CheckReason(request.reason()); !reason.ok()) return call->Finish(reason);
  broker.RevokeLeases(call->session(), {request.lease_ids().begin(), request.lease_ids().end()},
                      request.reason(), [call](absl::StatusOr<uint64_t> revoked) {
                        if (revoked.ok()) call->response().set_revoked(*revoked);
                        call->Finish(revoked.status());
                      });
}

void RevokeSession(broker::Broker& broker,
                   Call<v1::RevokeSessionRequest, v1::RevokeSessionResponse>* call) {
  const v1::RevokeSessionRequest& request = call->request();
  if (auto reason = CheckReason(request.reason()); !reason.ok()) return call->Finish(reason);
  call->Finish(broker.RevokeSession(call->session(), request.session_id(), request.reason()));
}

void DrainDaemon(broker::Broker& broker,
                 Call<v1::DrainDaemonRequest, v1::DrainDaemonResponse>* call) {
  const v1::DrainDaemonRequest& request = call->request();
  if (auto reason = CheckReason(request.reason()); !reason.ok()) return call->Finish(reason);
  const auto deadline =
      WaitFrom(request.has_deadline(), "deadline", request.deadline(), kMostDeadline);
  if (!deadline.ok()) return call->Finish(deadline.status());
  broker.StartDrain(*call->session(), request.reason(),
                    request.has_deadline() ? std::optional(*deadline) : std::nullopt);
  // Another admin may have taken it back already.
  if (const auto now = broker.DrainNow(); now.drained) {
    ToProto(now, call->response().mutable_drain());
  }
  call->Finish(absl::OkStatus());
}

void UndrainDaemon(broker::Broker& broker,
                   Call<v1::UndrainDaemonRequest, v1::UndrainDaemonResponse>* call) {
  broker.StopDrain(*call->session());
  call->Finish(absl::OkStatus());
}

void ReloadPolicy(broker::Broker& broker, const std::function<absl::Status()>& reload,
                  Call<v1::ReloadPolicyRequest, v1::ReloadPolicyResponse>* call) {
  if (!reload) {
    return call->Finish(MakeError(v1::UNSUPPORTED, "this daemon reads no policy",
                                  {.advice = "Ask one that was started as mrd"}));
  }
  auto work = broker::Work::Begin(broker, call->session());
  if (!work.ok()) return call->Finish(work.status());
  broker.registrar().SubmitCleanup(
      call->session()->owner(), [&broker, &reload, call, work = *std::move(work)] {
        log::Write(spdlog::level::info, "the policy is read anew, for an admin",
                   log::Fields()
                       .Add("admin_uid", std::to_string(call->session()->identity.uid))
                       .Add("admin_pid", call->session()->identity.pid == 0
                                             ? "hidden"
                                             : std::to_string(call->session()->identity.pid)));
        const absl::Status read = reload();
        if (read.ok()) {
          call->response().set_rules(broker.books().policy()->rules());
          return call->Finish(read);
        }
        call->Finish(MakeError(
            v1::POLICY_INVALID,
            absl::StrCat("the policy is not taken, the one in force stays: ",
                         Shortened(std::string(read.message()))),
            {.advice = "Correct the file (mrctl policy check FILE tells all), then reload"}));
      });
}

}  // namespace mrd::service
