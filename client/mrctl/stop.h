// When `mrctl register` shall stop holding: a signal, the time, or the daemon's end.
#ifndef MRD_CLIENT_MRCTL_STOP_H_
#define MRD_CLIENT_MRCTL_STOP_H_

#include <optional>

#include "absl/status/status.h"

namespace mrctl {

// One a process.
class Stop final {
 public:
  // status() says what it lacks.
  Stop();
  ~Stop();
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  const absl::Status& status() const { return status_; }

  // From now on the first SIGINT, SIGTERM or SIGHUP ends Wait(), and the next one the process, as
  // every one did before: attaching and populating take long, and the daemon cleans up after who
  // dies of it. An ignored SIGHUP stays ignored (nohup).
  void TakeSignals();

  // From any thread: it is over.
  void Now();

  // Waits for a signal, Now(), or the end of `seconds`.
  void Wait(std::optional<double> seconds);

 private:
  absl::Status status_;
};

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_STOP_H_
