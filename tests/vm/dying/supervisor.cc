#include "tests/vm/dying/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/unique_fd.h"

namespace dying {
namespace {

using mrd::UniqueFd;

// Its own descriptors lie above those that a child is given.
constexpr int kOutOfTheWay = 4096;
constexpr int kMostFdsAMessage = 16;

struct Kept {
  std::string name;
  UniqueFd fd;
};

[[noreturn]] void Fail(const std::string& what) {
  fprintf(stderr, "supervisor: %s: %s\n", what.c_str(), strerror(errno));
  exit(1);
}

UniqueFd OutOfTheWay(UniqueFd fd) {
  UniqueFd high(fcntl(fd.get(), F_DUPFD_CLOEXEC, kOutOfTheWay));
  if (!high) Fail("F_DUPFD_CLOEXEC");
  return high;
}

void Bind(int socket, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) Fail(path);
  memcpy(address.sun_path, path.data(), path.size());
  unlink(path.c_str());
  if (bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) < 0) Fail(path);
}

UniqueFd Listening(int type, const std::string& path, mode_t mode) {
  UniqueFd made(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  Bind(made.get(), path);
  if (chmod(path.c_str(), mode) < 0 || listen(made.get(), SOMAXCONN) < 0) Fail(path);
  return OutOfTheWay(std::move(made));
}

std::optional<std::string> Value(const std::string& message, const std::string& key) {
  for (size_t at = 0; at < message.size();) {
    const size_t end = std::min(message.find('\n', at), message.size());
    if (message.compare(at, key.size() + 1, key + "=") == 0) {
      return message.substr(at + key.size() + 1, end - at - key.size() - 1);
    }
    at = end + 1;
  }
  return std::nullopt;
}

class Supervisor {
 public:
  Supervisor(Control& control, const std::string& dir) : control_(control) {
    rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0) Fail("RLIMIT_NOFILE");
    sockets_.push_back({"rpc", Listening(SOCK_STREAM, dir + "/mrd.sock", 0666)});
    sockets_.push_back({"attach", Listening(SOCK_SEQPACKET, dir + "/attach.sock", 0666)});
    sockets_.push_back({"admin", Listening(SOCK_SEQPACKET, dir + "-admin/attach.sock", 0600)});
    UniqueFd notify(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    Bind(notify.get(), dir + "-admin/notify");
    setenv("NOTIFY_SOCKET", (dir + "-admin/notify").c_str(), 1);
    notify_ = OutOfTheWay(std::move(notify));
  }

  int Run(const std::function<int()>& daemon) {
    for (;;) {
      const pid_t pid = fork();
      if (pid < 0) Fail("fork");
      if (pid == 0) {
        BecomeChild();
        exit(daemon());
      }
      const int status = Attend(pid);
      if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) continue;
      ++control_.ends;
      fprintf(stderr, "supervisor: the daemon ended by itself, with status %d\n", status);
      return 1;
    }
  }

 private:
  // What systemd does between fork and exec.
  void BecomeChild() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::string names;
    int next = SD_LISTEN_FDS_START;
    for (const auto* each : {&sockets_, &kept_}) {
      for (const Kept& kept : *each) {
        if (dup2(kept.fd.get(), next++) < 0) Fail("dup2");
        names += (names.empty() ? "" : ":") + kept.name;
      }
    }
    syscall(SYS_close_range, next, ~0u, 0);
    setenv("LISTEN_PID", std::to_string(getpid()).c_str(), 1);
    setenv("LISTEN_FDS", std::to_string(next - SD_LISTEN_FDS_START).c_str(), 1);
    setenv("LISTEN_FDNAMES", names.c_str(), 1);
  }

  // Until it has ended; how.
  int Attend(pid_t pid) {
    const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!process) Fail("pidfd_open");
    for (;;) {
      pollfd fds[] = {{notify_.get(), POLLIN, 0}, {process.get(), POLLIN, 0}};
      if (poll(fds, 2, -1) < 0) continue;
      // Before its end is looked at: all that it has sent counts.
      const bool over = fds[1].revents != 0;
      while (Take()) {
      }
      if (!over) continue;
      int status = 0;
      waitpid(pid, &status, 0);
      return status;
    }
  }

  // One message; false where there is none.
  bool Take() {
    char bytes[4096];
    alignas(cmsghdr) char control[CMSG_SPACE(kMostFdsAMessage * sizeof(int))];
    iovec part = {bytes, sizeof bytes};
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t length = recvmsg(notify_.get(), &header, MSG_CMSG_CLOEXEC);
    if (length < 0) return false;
    std::vector<UniqueFd> fds;
    for (cmsghdr* each = CMSG_FIRSTHDR(&header); each; each = CMSG_NXTHDR(&header, each)) {
      if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
      for (size_t i = 0; i < (each->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd;
        memcpy(&fd, CMSG_DATA(each) + i * sizeof fd, sizeof fd);
        fds.push_back(OutOfTheWay(UniqueFd(fd)));
      }
    }
    const std::string message(bytes, length);
    const std::string name = Value(message, "FDNAME").value_or("");
    if (Value(message, "FDSTORE") == "1") {
      for (UniqueFd& fd : fds) kept_.push_back({name, std::move(fd)});
    } else if (Value(message, "FDSTOREREMOVE") == "1") {
      std::erase_if(kept_, [&name](const Kept& kept) { return kept.name == name; });
    }
    return true;
  }

  Control& control_;
  std::vector<Kept> sockets_;
  std::vector<Kept> kept_;
  UniqueFd notify_;
};

}  // namespace

int Supervise(Control& control, const std::string& dir, const std::function<int()>& daemon) {
  return Supervisor(control, dir).Run(daemon);
}

}  // namespace dying
