// A program on a terminal of its own (pty), and what its screen shows.
#ifndef MRD_TESTS_E2E_TERMINAL_H_
#define MRD_TESTS_E2E_TERMINAL_H_

#include <sys/types.h>
#include <termios.h>

#include <optional>
#include <string>
#include <vector>

#include "daemon/unique_fd.h"
#include "tests/e2e/common.h"

namespace mrd::e2e {

// Not thread-safe. The program is killed at its end.
class Terminal {
 public:
  Terminal(const std::vector<std::string>& argv, int columns, int rows);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  pid_t pid() const { return pid_; }
  void Type(const std::string& keys) const;
  void Resize(int columns, int rows) const;
  // All that was written so far.
  const std::string& Written();
  // Whether this is written at some time.
  bool Shows(const std::string& text, milliseconds within = kPatience);
  // Forgets what was written.
  void Forget() { written_.clear(); }
  // Its wait(2) status; nothing: it still runs.
  std::optional<int> Wait(milliseconds within = kPatience);
  // Echo and lines, as a shell has it.
  bool IsPlain() const;
  // What a person sees of it: whether the last switch was back from the alternate screen, the
  // cursor is there, and long lines wrap.
  bool GaveTheScreenBack();

 private:
  UniqueFd master_;
  UniqueFd slave_;  // Kept: its modes can be asked for when the program has gone.
  pid_t pid_;
  std::optional<int> status_;
  std::string written_;
};

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_TERMINAL_H_
