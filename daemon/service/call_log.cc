#include "daemon/service/call_log.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/log.h"
#include "mrd/v1/status.h"

namespace mrd::service {
namespace {

// By a limit, the policy or a device: of the operator's making, or for the operator to know. Others
// are the client's own doing, which has been told.
bool ForTheOperator(v1::Reason reason) {
  switch (reason) {
    case v1::POLICY_DENIED:
    case v1::DOMAIN_FORBIDDEN:
    case v1::QUOTA_BYTES:
    case v1::QUOTA_REGIONS:
    case v1::QUOTA_SESSIONS:
    case v1::QUOTA_ENDPOINTS:
    case v1::QUOTA_BUFFERS:
    case v1::QUOTA_DOMAINS:
    case v1::DEVICE_LIMIT:
    case v1::DEVICE_REMOVED:
    case v1::DEVICE_ERROR:
    case v1::MEMLOCK:
      return true;
    default:
      return false;
  }
}

void LogCall(broker::Broker& broker, const broker::Session* session, const std::string& method,
             const absl::Status& status, std::chrono::nanoseconds took) {
  log::Fields fields;
  fields.Add("method", method).Add("code", absl::StatusCodeToString(status.code()));
  fields.Add("us", std::to_string(took.count() / 1000));
  if (!status.ok()) fields.Reason(v1::Reason_Name(ReasonOf(status)));
  const std::string text = status.ok() ? "call" : absl::StrCat("call refused: ", status.message());
  if (session == nullptr) return log::Write(spdlog::level::debug, text, fields);
  broker.session_log().Write(spdlog::level::debug, session->id, session->identity, text, fields);
}

}  // namespace

bool CallsAreLogged() { return log::Wanted(spdlog::level::debug); }

std::string MethodOf(const std::string& request) {
  return std::string(absl::StripSuffix(request, "Request"));
}

void TellFinished(broker::Broker& broker, const broker::Session* session,
                  const std::string& request, const absl::Status& status,
                  std::chrono::nanoseconds took) {
  const std::string method = MethodOf(request);
  if (!status.ok()) {
    const auto detail = DetailOf(status);
    const v1::Reason reason = detail ? detail->reason() : v1::REASON_UNSPECIFIED;
    broker.observer().Refused(reason);
    if (session != nullptr && ForTheOperator(reason)) {
      log::Fields fields;
      fields.Reason(v1::Reason_Name(reason));
      if (detail->errno_value() != 0) fields.Errno(detail->errno_value());
      return broker.session_log().Write(spdlog::level::warn, session->id, session->identity,
                                        absl::StrCat(method, " refused: ", status.message()),
                                        fields.Add("method", method));
    }
  }
  if (CallsAreLogged()) LogCall(broker, session, method, status, took);
}

}  // namespace mrd::service
