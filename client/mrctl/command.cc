#include "client/mrctl/command.h"

#include <google/protobuf/util/json_util.h>

#include <cstdio>
#include <utility>

#include "mrd/v1/status.h"

namespace mrctl {
namespace {

int ExitCodeOf(const absl::Status& status) {
  const mrd::v1::Reason reason = mrd::ReasonOf(status);
  // The daemon went away while the command ran, or was not there to begin with. A refusal of its
  // own always has a reason.
  if (reason == mrd::v1::SESSION_UNKNOWN || reason == mrd::v1::DRAINING) return kUnreachable;
  if (reason != mrd::v1::REASON_UNSPECIFIED) return kRefused;
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kPermissionDenied:  // Of the socket.
      return kUnreachable;
    case absl::StatusCode::kInvalidArgument:
      return kUsage;
    default:
      return kRefused;
  }
}

std::string Json(const google::protobuf::Message& message, bool whole) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = whole;
  options.always_print_primitive_fields = whole;
  options.preserve_proto_field_names = true;
  std::string json;
  // Fails for Any and the like only, which the API's messages do not have.
  (void)google::protobuf::util::MessageToJsonString(message, &json, options);
  return json;
}

}  // namespace

absl::StatusOr<mrd::Client> Attach(const GlobalOptions& options, mrd::AttachOptions attach) {
  attach.socket_dir = options.socket_dir;
  attach.admin = options.admin;
  if (attach.name.empty()) attach.name = "mrctl";
  return mrd::Client::Attach(std::move(attach));
}

int Fail(const absl::Status& status) {
  std::string line(status.message());
  for (char& c : line) {
    if (c == '\n') c = ' ';
  }
  const mrd::v1::Reason reason = mrd::ReasonOf(status);
  const std::string name =
      reason == mrd::v1::REASON_UNSPECIFIED ? "" : " [" + mrd::v1::Reason_Name(reason) + "]";
  fprintf(stderr, "mrctl: %s%s\n", line.c_str(), name.c_str());
  return ExitCodeOf(status);
}

std::string ToJson(const google::protobuf::Message& message) { return Json(message, false); }

void PrintJson(const google::protobuf::Message& message) { Print(Json(message, true)); }

void Print(const std::string& text) {
  fputs(text.c_str(), stdout);
  fflush(stdout);
}

}  // namespace mrctl
