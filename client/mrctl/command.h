// What the commands share: the global options, attaching, output, exit codes.
#ifndef MRD_CLIENT_MRCTL_COMMAND_H_
#define MRD_CLIENT_MRCTL_COMMAND_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"

namespace mrctl {

// Exit codes; main.cc documents them in --help.
enum ExitCode {
  kOk = 0,
  kRefused = 1,
  kUsage = 2,
  kUnreachable = 3,
};

struct GlobalOptions {
  std::string socket_dir;  // Empty: $MRD_SOCKET_DIR, else /run/mrd.
  bool json = false;
  bool admin = false;
};

absl::StatusOr<mrd::Client> Attach(const GlobalOptions& options, mrd::AttachOptions attach = {});

// Prints the error as one line on stderr and returns the exit code for it.
int Fail(const absl::Status& status);

// Proto names; on one line, without the fields that are zero.
std::string ToJson(const google::protobuf::Message& message);
// One JSON document on stdout: proto names, all fields.
void PrintJson(const google::protobuf::Message& message);

// Writes to stdout at once, so that a script that reads a pipe gets it. main() sees errors.
void Print(const std::string& text);

// The commands, each in a file of its own. They return the exit code.
int RunDevices(const GlobalOptions& options);
int RunStatus(const GlobalOptions& options);
int RunSessions(const GlobalOptions& options);
int RunLeases(const GlobalOptions& options, uint64_t session_id);
int RunVersion(const GlobalOptions& options);

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_COMMAND_H_
