#include "tests/e2e/terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mrd::e2e {

Terminal::Terminal(const std::vector<std::string>& argv, int columns, int rows) {
  int master;
  int slave;
  const winsize size = {static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0,
                        0};
  Require(openpty(&master, &slave, nullptr, nullptr, &size) == 0, "openpty");
  master_.reset(master);
  slave_.reset(slave);
  fcntl(master, F_SETFL, O_NONBLOCK);
  std::vector<char*> args;
  for (const std::string& arg : argv) args.push_back(const_cast<char*>(arg.c_str()));
  args.push_back(nullptr);
  pid_ = fork();
  Require(pid_ >= 0, "fork");
  if (pid_ == 0) {
    setsid();
    ioctl(slave, TIOCSCTTY, 0);
    for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(slave, fd);
    close(master);
    execv(args[0], args.data());
    _exit(127);
  }
}

Terminal::~Terminal() {
  if (Wait(milliseconds(0))) return;
  kill(pid_, SIGKILL);
  Wait();
}

void Terminal::Type(const std::string& keys) const {
  Require(write(master_.get(), keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()),
          "type");
}

void Terminal::Resize(int columns, int rows) const {
  const winsize size = {static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0,
                        0};
  Require(ioctl(master_.get(), TIOCSWINSZ, &size) == 0, "resize");
}

const std::string& Terminal::Written() {
  char buffer[4096];
  ssize_t count;
  while ((count = read(master_.get(), buffer, sizeof buffer)) > 0) written_.append(buffer, count);
  return written_;
}

bool Terminal::Shows(const std::string& text, milliseconds within) {
  return WaitUntil(within, [&] { return Written().find(text) != std::string::npos; });
}

std::optional<int> Terminal::Wait(milliseconds within) {
  if (status_) return status_;
  WaitUntil(within, [&] {
    Written();  // It may wait for room.
    int status;
    if (waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
    return status_.has_value();
  });
  return status_;
}

bool Terminal::IsPlain() const {
  termios modes;
  return tcgetattr(slave_.get(), &modes) == 0 && (modes.c_lflag & ICANON) != 0 &&
         (modes.c_lflag & ECHO) != 0;
}

bool Terminal::GaveTheScreenBack() {
  const std::string& written = Written();
  const auto last = [&](const char* text) { return written.rfind(text) + 1; };
  return last("\x1b[?1049l") > last("\x1b[?1049h") && last("\x1b[?25h") > last("\x1b[?25l") &&
         last("\x1b[?7h") > last("\x1b[?7l");
}

}  // namespace mrd::e2e
