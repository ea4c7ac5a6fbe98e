// The terminal: how wide it is, and a full screen that is given back however the program ends.
#ifndef MRD_CLIENT_MRCTL_TERMINAL_H_
#define MRD_CLIENT_MRCTL_TERMINAL_H_

#include <chrono>
#include <cstddef>
#include <string>

#include "absl/status/status.h"

namespace mrctl {

// Columns; 0: it is no terminal, or does not say.
size_t WidthOf(int fd);

struct ScreenSize {
  size_t columns = 80;
  size_t rows = 24;
};

// One a process. Takes stdin and stdout: no echo, keys at once, the alternate screen without a
// cursor. What was there before comes back with its end, on SIGINT, SIGTERM, SIGHUP and SIGQUIT, on
// a crash, and while the program is stopped (SIGTSTP); SIGKILL leaves nothing that could do it.
class Screen final {
 public:
  // status() says what it lacks: both must be a terminal.
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  const absl::Status& status() const { return status_; }
  static ScreenSize Size();

  // Shows these lines from the top left corner on; what was below them goes. False: nobody looks
  // any more.
  bool Show(const std::string& lines);

  enum class Event { kTime, kKey, kResized, kEnd };
  // Waits for a key, a signal or the end of this time. kEnd: a signal, or stdin's end. A second
  // signal, where the first is not waited for, ends the process.
  Event Wait(std::chrono::milliseconds most, char* key);

 private:
  absl::Status status_;
  bool taken_ = false;
};

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_TERMINAL_H_
