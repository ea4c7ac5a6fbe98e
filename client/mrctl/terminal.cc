#include "client/mrctl/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>

namespace mrctl {
namespace {

// Lines do not wrap: some characters are wider than one column, and a client that has such ones in
// its command line would push the screen upwards.
constexpr char kEnter[] = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J\x1b[H";
constexpr char kLeave[] = "\x1b[?7h\x1b[?25h\x1b[0m\x1b[?1049l";
constexpr int kEnds[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr int kCrashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};

// What handlers use: of the one Screen, and async-signal-safe.
termios before;
std::atomic<bool> entered{false};
int told[2] = {-1, -1};  // A pipe: a handler writes what happened.
std::atomic<int> ending{0};

bool WriteAll(const char* text, size_t length) {
  while (length > 0) {
    const ssize_t count = write(STDOUT_FILENO, text, length);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text += count;
    length -= static_cast<size_t>(count);
  }
  return true;
}

void Enter() {
  termios raw = before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  entered = true;  // First: a signal between the two gives back too much rather than too little.
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  WriteAll(kEnter, sizeof kEnter - 1);
}

void Leave() {
  if (!entered.exchange(false)) return;
  WriteAll(kLeave, sizeof kLeave - 1);
  tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

void OnEnd(int signal) {
  const int error = errno;
  if (ending.exchange(signal) != 0) {  // The loop is stuck in a call.
    Leave();
    _exit(128 + signal);
  }
  (void)!write(told[1], "e", 1);
  errno = error;
}

void OnResize(int) {
  const int error = errno;
  (void)!write(told[1], "r", 1);
  errno = error;
}

void OnStop(int) {
  const int error = errno;
  Leave();
  raise(SIGSTOP);
  // Continued, in the foreground or not; in the background the write stops it anew (tostop).
  Enter();
  (void)!write(told[1], "r", 1);
  errno = error;
}

void OnCrash(int signal) {
  Leave();
  raise(signal);  // SA_RESETHAND: now it ends the process.
}

void Handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigaction(signal, &action, nullptr);
}

}  // namespace

size_t WidthOf(int fd) {
  winsize size;
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

ScreenSize Screen::Size() {
  winsize size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

Screen::Screen() {
  if (isatty(STDIN_FILENO) != 1 || isatty(STDOUT_FILENO) != 1 ||
      tcgetattr(STDIN_FILENO, &before) != 0) {
    status_ = absl::InvalidArgumentError(
        "a live view needs a terminal: --once prints one sample, --json one a line");
    return;
  }
  if (pipe2(told, O_CLOEXEC | O_NONBLOCK) != 0) {
    status_ = absl::ErrnoToStatus(errno, "cannot take signals");
    return;
  }
  taken_ = true;
  for (const int each : kEnds) Handle(each, OnEnd, 0);
  for (const int each : kCrashes) Handle(each, OnCrash, static_cast<int>(SA_RESETHAND));
  Handle(SIGWINCH, OnResize, SA_RESTART);
  Handle(SIGTSTP, OnStop, SA_RESTART);
  Handle(SIGTTOU, SIG_IGN, 0);  // To give the terminal back from the background.
  atexit(Leave);
  Enter();
}

Screen::~Screen() {
  if (!taken_) return;
  Leave();
  for (const int each : kEnds) Handle(each, SIG_DFL, 0);
  for (const int each : kCrashes) Handle(each, SIG_DFL, 0);
  for (const int each : {SIGWINCH, SIGTSTP, SIGTTOU}) Handle(each, SIG_DFL, 0);
  for (int& end : told) {
    close(end);
    end = -1;
  }
}

bool Screen::Show(const std::string& lines) {
  std::string frame = "\x1b[H";
  for (const char c : lines) {
    if (c == '\n') {
      frame += "\x1b[K\r\n";  // What the frame before had to the right of it goes.
    } else {
      frame += c;
    }
  }
  frame += "\x1b[K\x1b[J";
  return WriteAll(frame.data(), frame.size());
}

Screen::Event Screen::Wait(std::chrono::milliseconds most, char* key) {
  pollfd ready[] = {{told[0], POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
  const int count = poll(ready, 2, static_cast<int>(most.count()));
  if (ready[0].revents != 0 || (count < 0 && errno == EINTR)) {
    char what[64];
    ssize_t got;
    while ((got = read(told[0], what, sizeof what)) > 0) {
    }
    return ending != 0 ? Event::kEnd : Event::kResized;
  }
  if (count == 0) return Event::kTime;
  const ssize_t got = read(STDIN_FILENO, key, 1);
  if (got == 1) return Event::kKey;
  return got < 0 && errno == EINTR ? Event::kResized : Event::kEnd;
}

}  // namespace mrctl
