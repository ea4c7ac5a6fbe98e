#include "daemon/library_logs.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/ipc/sparse_warnings.h"

namespace mrd {
namespace {

constexpr size_t kMostBytes = 200;  // Of a message.
// Lines of source that say something share so many turns, each one line a minute: one that a client
// has said all the time hides not all others.
constexpr int kTurns = 4;

std::atomic<bool> dropped{false};

// As much of it as a log line takes unharmed.
std::string Tamed(absl::string_view message) {
  std::string text(message.substr(0, kMostBytes));
  for (char& byte : text) {
    if (byte < 0x20 || byte > 0x7e) byte = '?';
  }
  if (message.size() > kMostBytes) text += "...";
  return text;
}

void Warn(const char* library, int line, absl::string_view message) {
  // Never destroyed, as the threads that come here.
  static ipc::SparseWarnings& warnings = *new ipc::SparseWarnings;
  if (dropped) return;
  warnings.Warn(line % kTurns, absl::StrCat(library, ": ", Tamed(message)));
}

void OnGrpc(gpr_log_func_args* args) { Warn("gRPC", args->line, args->message); }

void OnProtobuf(google::protobuf::LogLevel, const char*, int line, const std::string& message) {
  Warn("protobuf", kTurns * line, message);
}

}  // namespace

void TakeLibraryLogs() {
  gpr_set_log_function(OnGrpc);
  google::protobuf::SetLogHandler(OnProtobuf);
}

void DropLibraryLogs() { dropped = true; }

}  // namespace mrd
