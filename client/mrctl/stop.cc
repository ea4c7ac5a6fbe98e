#include "client/mrctl/stop.h"

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
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC);
  event_ = eventfd(0, EFD_CLOEXEC);
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
  // A stopped and continued process comes back early, with EINTR only after a handler: none is set.
  ppoll(fds, 2, seconds ? &timeout : nullptr, nullptr);
}

}  // namespace mrctl
