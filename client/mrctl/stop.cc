#include "client/mrctl/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

namespace mrctl {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// A signal's handler writes into it, in whatever thread.
int ends[2] = {-1, -1};

void Write() { (void)!write(ends[1], "", 1); }

void OnSignal(int);

// The default action is back; of all of them, unlike with SA_RESETHAND.
void LeaveSignals() {
  for (const int each : kSignals) {
    struct sigaction now;
    if (sigaction(each, nullptr, &now) == 0 && now.sa_handler == OnSignal) signal(each, SIG_DFL);
  }
}

void OnSignal(int) {
  const int error = errno;
  LeaveSignals();
  Write();
  errno = error;
}

}  // namespace

Stop::Stop() {
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    status_ = absl::ErrnoToStatus(errno, "cannot wait for Ctrl-C");
  }
  // A shell that runs a script starts what stands before "&" with Ctrl-C ignored, but `kill -INT`
  // of it is meant. A SIGHUP that is ignored is nohup's.
  for (const int each : {SIGINT, SIGTERM}) signal(each, SIG_DFL);
  // Whoever started this may have blocked them.
  sigset_t set;
  sigemptyset(&set);
  for (const int each : kSignals) sigaddset(&set, each);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

Stop::~Stop() {
  LeaveSignals();
  for (int& end : ends) {
    if (end >= 0) close(end);
    end = -1;
  }
}

void Stop::TakeSignals() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;  // The main thread is in a call of the library's, perhaps.
  for (const int each : kSignals) {
    struct sigaction now;
    if (sigaction(each, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) {
      sigaction(each, &action, nullptr);
    }
  }
}

void Stop::Now() { Write(); }

void Stop::Wait(std::optional<double> seconds) {
  pollfd end = {ends[0], POLLIN, 0};
  timespec timeout = {};
  if (seconds) {
    timeout.tv_sec = static_cast<time_t>(*seconds);
    timeout.tv_nsec = static_cast<long>((*seconds - static_cast<double>(timeout.tv_sec)) * 1e9);
  }
  // Interrupted by the handler, that is: it has written. A process that is stopped and continued
  // goes on waiting.
  ppoll(&end, 1, seconds ? &timeout : nullptr, nullptr);
}

}  // namespace mrctl
