#include "client/mrctl/command.h"

#include <errno.h>
#include <google/protobuf/util/json_util.h>
#include <string.h>

#include <algorithm>
#include <cstdio>
#include <string_view>
#include <utility>

#include "daemon/broker/policy/text.h"
#include "mrd/v1/status.h"

namespace mrctl {
namespace {

int ExitCodeOf(const absl::Status& status) {
  const mrd::v1::Reason reason = mrd::ReasonOf(status);
  // The daemon went away while the command ran, or was not there to begin with. A refusal of its
  // own always has a reason.
  if (reason == mrd::v1::SESSION_UNKNOWN) return kUnreachable;
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

std::string OneLine(const absl::Status& status) {
  std::string line(status.message());
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

// What a terminal takes unharmed, line by line: whoever made the socket directory that this was
// given may have said what it repeats.
std::string Shown(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    shown += mrd::policy::Printable(text.substr(0, end));
    if (end == text.npos) break;
    shown += '\n';
    text.remove_prefix(end + 1);
  }
  return shown;
}

// A JSON string.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) {
      quoted += c;
    } else {
      char escaped[8];
      snprintf(escaped, sizeof(escaped), "\\u%04x", c);
      quoted += escaped;
    }
  }
  return quoted + '"';
}

std::string QuotedOrNull(const std::string& text) { return text.empty() ? "null" : Quoted(text); }

// Every field is there; what is not known is null.
std::string ErrorJson(const absl::Status& status, const mrd::v1::ErrorDetail& detail,
                      const std::string& reason) {
  const bool limited = !detail.limit_name().empty();
  return "{\"code\": \"" + absl::StatusCodeToString(status.code()) +
         "\", \"reason\": " + QuotedOrNull(reason) + ", \"message\": " + Quoted(OneLine(status)) +
         ", \"errno\": " + QuotedOrNull(detail.errno_name()) +
         ", \"limit_name\": " + QuotedOrNull(detail.limit_name()) +
         ", \"limit\": " + (limited ? std::to_string(detail.limit()) : "null") +
         ", \"used\": " + (limited ? std::to_string(detail.used()) : "null") + "}";
}

}  // namespace

absl::StatusOr<mrd::Client> Attach(const GlobalOptions& options, mrd::AttachOptions attach) {
  attach.socket_dir = options.socket_dir;
  attach.admin = options.admin;
  if (attach.name.empty()) attach.name = "mrctl";
  return mrd::Client::Attach(std::move(attach));
}

int Fail(const GlobalOptions& options, const absl::Status& status) {
  const mrd::v1::ErrorDetail detail = mrd::DetailOf(status).value_or(mrd::v1::ErrorDetail());
  const std::string reason =
      detail.reason() == mrd::v1::REASON_UNSPECIFIED ? "" : mrd::v1::Reason_Name(detail.reason());
  if (options.json) {
    fprintf(stderr, "%s\n", ErrorJson(status, detail, reason).c_str());
  } else {
    fprintf(stderr, "mrctl: %s%s\n", Shown(OneLine(status)).c_str(),
            reason.empty() ? "" : (" [" + reason + "]").c_str());
  }
  return ExitCodeOf(status);
}

void Note(const GlobalOptions& options, const std::string& text) {
  const std::string line =
      options.json ? "{\"note\": " + Quoted(text) + "}" : Shown("mrctl: " + text);
  fprintf(stderr, "%s\n", line.c_str());
}

std::string ToJson(const google::protobuf::Message& message) { return Json(message, false); }

int Print(const GlobalOptions& options, const std::string& text) {
  const std::string shown = options.json ? text : Shown(text);
  if (fputs(shown.c_str(), stdout) >= 0 && fflush(stdout) == 0) return kOk;
  const int error = errno;
  mrd::v1::ErrorDetail detail;
  detail.set_errno_value(error);
  detail.set_errno_name(mrd::ErrnoName(error));
  return Fail(options,
              mrd::WithDetail(absl::DataLossError(std::string("cannot write to standard output: ") +
                                                  strerror(error)),
                              detail));
}

int PrintJson(const GlobalOptions& options, const google::protobuf::Message& message) {
  return Print(options, Json(message, true));
}

}  // namespace mrctl
