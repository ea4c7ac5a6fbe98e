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
enum ExitCode : int {
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

// Prints the error as one line on stderr, with --json as one JSON object (README), and returns the
// exit code for it.
int Fail(const GlobalOptions& options, const absl::Status& status);

// Prints what else there is to know as one line on stderr, with --json as {"note": "..."}.
void Note(const GlobalOptions& options, const std::string& text);

// Proto names; on one line, without the fields that are zero.
std::string ToJson(const google::protobuf::Message& message);

// Writes to stdout at once, so that a script that reads a pipe gets it. Returns the exit code: a
// full disk must not look like success to who reads the file.
int Print(const GlobalOptions& options, const std::string& text);
// One JSON document: proto names, all fields.
int PrintJson(const GlobalOptions& options, const google::protobuf::Message& message);

// The commands, each in a file of its own. They return the exit code.
int RunDevices(const GlobalOptions& options);
int RunStatus(const GlobalOptions& options);
int RunSessions(const GlobalOptions& options, bool wide);
int RunLeases(const GlobalOptions& options, uint64_t session_id, bool wide);
int RunEndpoints(const GlobalOptions& options, uint64_t session_id);
int RunDomains(const GlobalOptions& options);
int RunMetrics(const GlobalOptions& options);
int RunVersion(const GlobalOptions& options);

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_COMMAND_H_
