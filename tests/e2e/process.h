// A real process of a test: the daemon, a client, mrctl.
#ifndef MRD_TESTS_E2E_PROCESS_H_
#define MRD_TESTS_E2E_PROCESS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/unique_fd.h"
#include "tests/e2e/common.h"

namespace mrd::e2e {

struct ProcessOptions {
  std::vector<std::string> argv;  // argv[0]: the program, by its path.
  std::vector<std::pair<std::string, std::string>> environment = {};  // Beside this process' own.
  std::string stderr_path = {};                                       // Empty: this process' own.
  std::vector<int> inherited = {};  // Descriptors that it gets, under the same numbers.
  bool own_pid_namespace = false;   // It is the first of its own.
  std::optional<uid_t> uid = {};    // Runs as this user, without groups.
};

// Not thread-safe. Killed at its end, and when this process dies.
class Process {
 public:
  explicit Process(const ProcessOptions& options);
  Process(Process&&) = default;
  Process& operator=(Process&&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }
  void Kill(int signal) const;
  // Its wait(2) status; nothing where it still runs.
  std::optional<int> Wait(milliseconds within);
  // Its exit status; -1: it was killed by a signal or still runs.
  int ExitStatus(milliseconds within = kPatience);

  // Lines of its stdin and stdout.
  void Write(const std::string& line) const;
  std::optional<std::string> Read(milliseconds within = kPatience);
  // One line to it and one back.
  std::string Ask(const std::string& line);
  // All that it writes until it closes its stdout.
  std::string ReadAll(milliseconds within = kPatience);
  void CloseInput() { in_.reset(); }

 private:
  bool Fill(Clock::time_point deadline);

  pid_t pid_ = -1;
  UniqueFd pidfd_;
  UniqueFd in_;
  UniqueFd out_;
  std::string unread_;
  std::optional<int> status_;
};

// SIGKILL to a process that is not this one's child, once it is known to run `command`; waits for
// its end.
void KillStranger(pid_t pid, const std::string& command);

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_PROCESS_H_
