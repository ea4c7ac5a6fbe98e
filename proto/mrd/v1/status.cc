#include "mrd/v1/status.h"

#include <string.h>

#include <utility>

#include "absl/strings/cord.h"

namespace mrd {
namespace {

constexpr char kDetailUrl[] = "type.googleapis.com/mrd.v1.ErrorDetail";
// Of what is wrong: it may repeat a name that a client chose, and all metadata of an answer has
// to fit into 8 KiB.
constexpr size_t kMostBytes = 1000;
constexpr size_t kMostNameBytes = 300;    // Of a limit: it may have a cgroup in it.
constexpr size_t kMostAdviceBytes = 600;  // It may list what a rule allows.

// Well-formed UTF-8 that may be shown on a terminal, and of a length that people read.
std::string Shown(std::string text, size_t most) {
  if (text.size() > most) {
    size_t end = most;
    while (end > 0 && (text[end] & 0xc0) == 0x80) --end;  // Not within a character.
    text.resize(end);
    text += "...";
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte < 0x20 || byte == 0x7f) text[i] = '?';
    // C1: U+0080 to U+009F.
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) text[i] = text[i + 1] = '?';
  }
  return text;
}

}  // namespace

absl::StatusCode CodeOf(v1::Reason reason) {
  switch (reason) {
    case v1::INVALID_LENGTH:
    case v1::NOT_SHARED_MEMORY:
    case v1::MISALIGNED:
    case v1::ADDRESS_UNUSABLE:
    case v1::ACCESS_INVALID:
    case v1::ADDRESS_INVALID:
    case v1::REQUEST_INVALID:
      return absl::StatusCode::kInvalidArgument;
    case v1::OUT_OF_RANGE:
      return absl::StatusCode::kOutOfRange;
    case v1::BUFFER_UNKNOWN:
    case v1::DEVICE_UNKNOWN:
    case v1::DOMAIN_UNKNOWN:
    case v1::LEASE_UNKNOWN:
    case v1::NO_SUCH_SESSION:
    case v1::ENDPOINT_UNKNOWN:
      return absl::StatusCode::kNotFound;
    case v1::NOT_SEALED:
    case v1::NOT_POPULATED:
    case v1::ACCESS_UNSUPPORTED:
    case v1::ENDPOINT_STATE:
    case v1::POLICY_INVALID:
      return absl::StatusCode::kFailedPrecondition;
    case v1::BUFFER_READ_ONLY:
    case v1::DOMAIN_FORBIDDEN:
    case v1::POLICY_DENIED:
      return absl::StatusCode::kPermissionDenied;
    case v1::DEVICE_REMOVED:
    case v1::BUSY:
    case v1::DRAINING:
    case v1::CONNECTION_FAILED:
      return absl::StatusCode::kUnavailable;
    case v1::QUOTA_BYTES:
    case v1::QUOTA_REGIONS:
    case v1::QUOTA_SESSIONS:
    case v1::QUOTA_ENDPOINTS:
    case v1::QUOTA_BUFFERS:
    case v1::QUOTA_DOMAINS:
    case v1::DEVICE_LIMIT:
    case v1::MEMLOCK:
      return absl::StatusCode::kResourceExhausted;
    case v1::SESSION_UNKNOWN:
      return absl::StatusCode::kUnauthenticated;
    case v1::REQUEST_ID_REUSED:
      return absl::StatusCode::kAlreadyExists;
    case v1::UNSUPPORTED:
      return absl::StatusCode::kUnimplemented;
    case v1::WAIT_ENDED:
      return absl::StatusCode::kDeadlineExceeded;
    default:
      return absl::StatusCode::kInternal;
  }
}

absl::Status WithDetail(absl::Status status, const v1::ErrorDetail& detail) {
  status.SetPayload(kDetailUrl, absl::Cord(detail.SerializeAsString()));
  return status;
}

absl::Status WithPrefix(const std::string& prefix, const absl::Status& status) {
  absl::Status prefixed(status.code(), prefix + std::string(status.message()));
  if (const auto detail = status.GetPayload(kDetailUrl)) {
    prefixed.SetPayload(kDetailUrl, *detail);
  }
  return prefixed;
}

absl::Status MakeError(v1::Reason reason, std::string what, ErrorFacts facts) {
  v1::ErrorDetail detail;
  detail.set_reason(reason);
  if (facts.errno_value != 0) {
    detail.set_errno_value(facts.errno_value);
    detail.set_errno_name(ErrnoName(facts.errno_value));
  }
  detail.set_limit_name(Shown(std::move(facts.limit_name), kMostNameBytes));
  detail.set_limit(facts.limit);
  detail.set_used(facts.used);
  what = Shown(std::move(what), kMostBytes);
  facts.advice = Shown(std::move(facts.advice), kMostAdviceBytes);
  if (!facts.advice.empty()) {
    what += ". ";
    what += facts.advice;
  }
  detail.set_advice(std::move(facts.advice));
  return WithDetail(absl::Status(CodeOf(reason), what), detail);
}

std::optional<v1::ErrorDetail> DetailOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kDetailUrl);
  v1::ErrorDetail detail;
  if (!payload || !detail.ParseFromString(std::string(*payload))) return std::nullopt;
  return detail;
}

v1::Reason ReasonOf(const absl::Status& status) {
  const auto detail = DetailOf(status);
  return detail ? detail->reason() : v1::REASON_UNSPECIFIED;
}

std::string ErrnoName(int errno_value) {
  const char* name = strerrorname_np(errno_value);
  return name ? name : "errno " + std::to_string(errno_value);
}

}  // namespace mrd
