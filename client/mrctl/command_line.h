// The command line: what each command takes, and what it then does. CLI11 is known here and in
// main.cc.
#ifndef MRD_CLIENT_MRCTL_COMMAND_LINE_H_
#define MRD_CLIENT_MRCTL_COMMAND_LINE_H_

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "client/mrctl/admin.h"
#include "client/mrctl/command.h"
#include "client/mrctl/policy.h"
#include "client/mrctl/register.h"
#include "client/mrctl/top.h"
#include "daemon/usage.h"

namespace mrctl {

// What the parsers write to, with the lifetime of the program's one run.
struct CommandLine {
  GlobalOptions global;
  // What the command that was given does; returns the exit code. Set while it is parsed.
  std::function<int()> run;

  uint64_t session_id = 0;
  bool wide = false;
  RegisterCommand reg;
  ExplainCommand explain;
  std::string policy_file;
  RevokeCommand revoke;
  DrainCommand drain;
  LeaveCommand leave;
  std::string generation_text;
  TopCommand top;

  // CLI11's own conversions have texts for programmers: all values come as they were written.
  std::string size_text, access_text, pages_text, count_text, listen_text, for_text, session_text,
      uid_text, ttl_text, mode_text, deadline_text, interval_text, sort_text;
  std::vector<std::string> gid_texts, id_texts;
};

// A CLI11 check by one of the parsers, which keeps what it parsed.
template <typename Value, typename Kept>
CLI::Validator Parsed(absl::StatusOr<Value> (*parse)(std::string_view), Kept* value) {
  return CLI::Validator(
      [parse, value](const std::string& text) {
        auto parsed = parse(text);
        if (!parsed.ok()) return std::string(parsed.status().message());
        *value = *parsed;
        return std::string();
      },
      "");
}

absl::StatusOr<uint64_t> ParseSessionId(std::string_view text);

// `line` outlives `app`. The order in which they are added is that of --help.
void AddViews(CLI::App& app, CommandLine& line);    // devices, status, sessions, ..., doctor
void AddActions(CLI::App& app, CommandLine& line);  // revoke, drain, reload
void AddRegister(CLI::App& app, CommandLine& line);
void AddPolicy(CLI::App& app, CommandLine& line);

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_COMMAND_LINE_H_
