#include "client/mrctl/stop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

namespace mrctl {

Stop::Stop() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGHUP);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  event_ = eventfd(0, EFD_CLOEXEC);
  if (signals_ < 0 || event_ < 0) {
    status_ = absl::ErrnoToStatus(errno, "cannot wait for Ctrl-C");
    return;
  }
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Stop::~Stop() {
  close(signals_);
  close(event_);
}

void Stop::Now() { eventfd_write(event_, 1); }

void Stop::Wait(std::optional<double> seconds) {
  pollfd fds[] = {{signals_, POLLIN, 0}, {event_, POLLIN, 0}};
  timespec timeout = {};
  if (seconds) {
    timeout.tv_sec = static_cast<time_t>(*seconds);
    timeout.tv_nsec = static_cast<long>((*seconds - static_cast<double>(timeout.tv_sec)) * 1e9);
  }
  // No EINTR: no handler is set, and a process that is stopped and continued goes on waiting.
  ppoll(fds, 2, seconds ? &timeout : nullptr, nullptr);
}

}  // namespace mrctl
