// When `mrctl register` shall stop holding: a signal, the time, or the daemon's end.
#ifndef MRD_CLIENT_MRCTL_STOP_H_
#define MRD_CLIENT_MRCTL_STOP_H_

#include <optional>

#include "absl/status/status.h"

namespace mrctl {

class Stop final {
 public:
  // Takes SIGINT, SIGTERM and SIGHUP from now on, unless status() says why not. REQUIRES: no other
  // thread runs yet, so that all inherit the mask.
  Stop();
  ~Stop();
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  const absl::Status& status() const { return status_; }

  // From any thread: it is over.
  void Now();

  // Waits for a signal, Now(), or the end of `seconds`.
  void Wait(std::optional<double> seconds);

 private:
  int signals_;
  int event_;
  absl::Status status_;
};

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_STOP_H_
