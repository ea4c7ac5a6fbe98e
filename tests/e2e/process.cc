#include "tests/e2e/process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

extern char** environ;

namespace mrd::e2e {
namespace {

int Left(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(left, 0));
}

bool Readable(int fd, Clock::time_point deadline) {
  pollfd poll_fd{fd, POLLIN, 0};
  for (;;) {
    const int ready = poll(&poll_fd, 1, Left(deadline));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

// fork(2), with the child as the first process of a pid namespace of its own.
pid_t ForkIntoPidNamespace() {
  const UniqueFd own(open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
  Require(own && unshare(CLONE_NEWPID) == 0, "unshare(CLONE_NEWPID)");
  const pid_t pid = fork();
  if (pid != 0) Require(setns(own.get(), CLONE_NEWPID) == 0, "setns");
  return pid;
}

// The child between fork and exec: nothing here allocates or locks.
struct Child {
  int program;
  int in, out, err;
  const std::vector<int>& inherited;
  std::optional<uid_t> uid;
  char** argv;
  char** env;

  [[noreturn]] void Run() const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in, 0);
    dup2(out, 1);
    if (err >= 0) dup2(err, 2);
    for (const int fd : inherited) fcntl(fd, F_SETFD, 0);
    if (uid && (setgroups(0, nullptr) < 0 || setgid(*uid) < 0 || setuid(*uid) < 0)) _exit(126);
    if (!uid) execve(argv[0], argv, env);
    // The change of the user took it off.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // By its descriptor: another user cannot go where this one's files are.
    syscall(SYS_execveat, program, "", argv, env, AT_EMPTY_PATH);
    _exit(127);
  }
};

}  // namespace

Process::Process(const ProcessOptions& options) {
  int in[2];
  int out[2];
  Require(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "pipe2");
  const UniqueFd child_in(in[0]);
  const UniqueFd child_out(out[1]);
  in_.reset(in[1]);
  out_.reset(out[0]);
  UniqueFd err;
  if (!options.stderr_path.empty()) {
    err.reset(open(options.stderr_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    Require(static_cast<bool>(err), "open " + options.stderr_path);
  }
  std::vector<std::string> argv = options.argv;
  std::vector<std::string> env;
  for (const auto& [name, value] : options.environment) env.push_back(name + "=" + value);
  for (char** entry = environ; *entry; ++entry) env.push_back(*entry);
  std::vector<char*> argv_pointers = Pointers(argv);
  std::vector<char*> env_pointers = Pointers(env);
  const UniqueFd program(open(argv[0].c_str(), O_PATH | O_CLOEXEC));
  Require(static_cast<bool>(program), "open " + argv[0]);
  const Child child{program.get(),     child_in.get(), child_out.get(),      err ? err.get() : -1,
                    options.inherited, options.uid,    argv_pointers.data(), env_pointers.data()};
  pid_ = options.own_pid_namespace ? ForkIntoPidNamespace() : fork();
  if (pid_ == 0) child.Run();
  Require(pid_ > 0, "fork");
  pidfd_.reset(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  Require(static_cast<bool>(pidfd_), "pidfd_open");
}

Process::~Process() {
  if (pid_ <= 0 || !pidfd_ || status_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Process::Kill(int signal) const {
  if (!status_) kill(pid_, signal);
}

std::optional<int> Process::Wait(milliseconds within) {
  if (status_) return status_;
  if (!Readable(pidfd_.get(), Clock::now() + within)) return std::nullopt;
  int status = 0;
  Require(waitpid(pid_, &status, 0) == pid_, "waitpid");
  status_ = status;
  return status_;
}

int Process::ExitStatus(milliseconds within) {
  const auto status = Wait(within);
  return status && WIFEXITED(*status) ? WEXITSTATUS(*status) : -1;
}

void Process::Write(const std::string& line) const {
  const std::string text = line + "\n";
  // A dead process does not take it; whoever reads its answer learns that.
  signal(SIGPIPE, SIG_IGN);
  (void)!write(in_.get(), text.data(), text.size());
}

bool Process::Fill(Clock::time_point deadline) {
  if (!Readable(out_.get(), deadline)) return false;
  char bytes[65536];
  const ssize_t length = read(out_.get(), bytes, sizeof bytes);
  if (length <= 0) return false;
  unread_.append(bytes, length);
  return true;
}

std::optional<std::string> Process::Read(milliseconds within) {
  const auto deadline = Clock::now() + within;
  for (;;) {
    const size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    if (!Fill(deadline)) return std::nullopt;
  }
}

std::string Process::Ask(const std::string& line) {
  Write(line);
  return Read().value_or("no answer to: " + line);
}

std::string Process::ReadAll(milliseconds within) {
  const auto deadline = Clock::now() + within;
  while (Fill(deadline)) {
  }
  return std::exchange(unread_, {});
}

void KillStranger(pid_t pid, const std::string& command) {
  const std::string comm = "/proc/" + std::to_string(pid) + "/comm";
  Require(ReadFile(comm) == command + "\n", "the process to be killed is not " + command);
  const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  kill(pid, SIGKILL);
  Require(Readable(pidfd.get(), Clock::now() + kPatience), "a killed process does not end");
}

}  // namespace mrd::e2e
