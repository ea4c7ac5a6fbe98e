// The real daemon, started for a test in a directory of its own, and what can be seen of it from
// outside.
#ifndef MRD_TESTS_E2E_DAEMON_PROCESS_H_
#define MRD_TESTS_E2E_DAEMON_PROCESS_H_

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/process.h"

namespace mrd::e2e {

struct DaemonOptions {
  std::string fabric = "soft";
  std::string devices = "devices=fake0";  // Of fabric verbs; see tests/fake/spec.h.
  std::string set = {};                   // See test_daemon.cc.
  bool own_pid_namespace = false;
  std::string log_level = "info";
  std::string policy = {};             // Text of its policy file.
  std::vector<std::string> args = {};  // Beside those above; @ stands for the test's own directory.
};

// Descriptors and mappings of a process.
struct Resources {
  size_t fds = 0;
  size_t shared_mappings = 0;  // MAP_SHARED: clients' buffers.
  size_t mappings = 0;
};
Resources ResourcesOf(pid_t pid);

// Not thread-safe.
class DaemonProcess {
 public:
  explicit DaemonProcess(DaemonOptions options);
  // Kills it where it still runs, and removes its directory.
  ~DaemonProcess();

  // Another daemon on this one's directory; it is not waited for.
  Process StartRival(const DaemonOptions& options);

  // The socket directory.
  const std::string& dir() const { return dir_; }
  // A directory of the test's own, with everything in it.
  const std::string& base() const { return base_; }
  pid_t pid() const { return process_->pid(); }
  Process& process() { return *process_; }
  Resources resources() const { return ResourcesOf(pid()); }
  // Bytes, each shared page counted in part (smaps_rollup).
  uint64_t Pss() const;
  std::string Log() const { return ReadFile(base_ + "/log"); }
  // Its policy file, never the machine's own.
  std::string policy_file() const { return base_ + "/mrd.textproto"; }
  // Writes this into it, has it read anew, and waits until it is in force or, where `good` is not
  // set, is refused.
  void Reload(const std::string& policy, bool good = true);
  // See Answer of test_daemon.cc.
  std::string Control(const std::string& command) const;

 private:
  ProcessOptions CommandFor(const DaemonOptions& options, const std::string& control) const;

  std::string base_;
  std::string dir_;
  std::unique_ptr<Process> process_;
  UniqueFd control_;
};

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_DAEMON_PROCESS_H_
