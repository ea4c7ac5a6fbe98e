#include "tests/e2e/service_manager.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace mrd::e2e {
namespace {

constexpr int kOutOfTheWay = 200;

UniqueFd Listening(int type, const std::string& path) {
  const UniqueFd made(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.data(), path.size());
  Require(bind(made.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
              listen(made.get(), 64) == 0,
          path);
  return OutOfTheWay(made);
}

}  // namespace

UniqueFd OutOfTheWay(const UniqueFd& fd) {
  return UniqueFd(fcntl(fd.get(), F_DUPFD_CLOEXEC, kOutOfTheWay));
}

NamedFds MakeSockets(const std::string& dir) {
  Require(mkdir(dir.c_str(), 0755) == 0 && mkdir((dir + "-admin").c_str(), 0700) == 0, "mkdir");
  NamedFds sockets;
  sockets.emplace_back("rpc", Listening(SOCK_STREAM, dir + "/mrd.sock"));
  sockets.emplace_back("attach", Listening(SOCK_SEQPACKET, dir + "/attach.sock"));
  sockets.emplace_back("admin", Listening(SOCK_SEQPACKET, dir + "-admin/attach.sock"));
  return sockets;
}

ProcessOptions Activated(const NamedFds& fds, std::vector<std::string> argv) {
  std::string script, names;
  ProcessOptions options;
  for (size_t i = 0; i < fds.size(); ++i) {
    const std::string from = std::to_string(fds[i].second.get());
    script += "exec " + std::to_string(3 + i) + "<&" + from + "; fd=" + from + "; exec {fd}<&-; ";
    names += (i > 0 ? ":" : "") + fds[i].first;
    options.inherited.push_back(fds[i].second.get());
  }
  script += "LISTEN_PID=$$ exec \"$@\"";
  options.argv = {"/bin/bash", "-c", script, "bash"};
  options.argv.insert(options.argv.end(), argv.begin(), argv.end());
  options.environment = {{"LISTEN_FDS", std::to_string(fds.size())}, {"LISTEN_FDNAMES", names}};
  return options;
}

ServiceManager::ServiceManager(size_t store)
    : limit_(store), sockets_(MakeSockets(run_)), stop_(eventfd(0, EFD_CLOEXEC)) {
  std::ofstream(dir_ / "policy") << "";
  // The daemon waits where nobody reads.
  thread_ = std::thread([this] {
    pollfd wait[] = {{receiver_.fd(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    while (poll(wait, 2, -1) > 0 && wait[1].revents == 0) Receive();
  });
}

ServiceManager::~ServiceManager() {
  daemon_.reset();
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void ServiceManager::Start(const std::string& program) {
  Require(!daemon_, "one daemon at a time");
  NamedFds fds;
  for (const auto& [name, fd] : sockets_) fds.emplace_back(name, OutOfTheWay(fd));
  int before;
  {
    const std::lock_guard lock(mutex_);
    before = ready_;
    for (const auto& [name, fd] : store_) fds.emplace_back(name, OutOfTheWay(fd));
  }
  ProcessOptions options =
      Activated(fds, {program, "--socket-dir=" + run_, "--config=" + (dir_ / "policy"),
                      "--store=" + std::to_string(limit_)});
  options.environment.insert(options.environment.end(), {{"NOTIFY_SOCKET", dir_ / "notify"},
                                                         {"MRD_FAKE_VERBS", "devices=fake0"},
                                                         {"MRD_FAKE_KERNEL", dir_ / "kernel"}});
  options.stderr_path = dir_ / "log";
  daemon_.emplace(options);
  const bool ready = WaitUntil(kPatience, [&] {
    const std::lock_guard lock(mutex_);
    return ready_ > before;
  });
  Require(ready, program + " does not get ready: " + Log());
}

void ServiceManager::End(int signal) {
  daemon_->Kill(signal);
  Require(daemon_->Wait(kPatience).has_value(), "the daemon does not end: " + Log());
  daemon_.reset();
  Receive();  // As systemd: all that was sent, before it looks who has died.
}

std::vector<std::string> ServiceManager::Stored() {
  std::vector<std::string> names;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, fd] : store_) names.push_back(name);
  return names;
}

UniqueFd ServiceManager::Stored(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = store_.find(name);
  return found == store_.end() ? UniqueFd() : OutOfTheWay(found->second);
}

void ServiceManager::Receive() {
  const std::lock_guard lock(mutex_);
  for (;;) {
    char text[4096];
    alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
    iovec part{text, sizeof text};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t length = recvmsg(receiver_.fd(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0) return;
    std::vector<UniqueFd> fds;
    for (cmsghdr* each = CMSG_FIRSTHDR(&header); each; each = CMSG_NXTHDR(&header, each)) {
      if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int fd;
        memcpy(&fd, CMSG_DATA(each) + i * sizeof fd, sizeof fd);
        fds.emplace_back(fd);
      }
    }
    Take(std::string(text, length), std::move(fds));
  }
}

void ServiceManager::Take(const std::string& message, std::vector<UniqueFd> fds) {
  std::string name;
  bool store = false;
  bool remove = false;
  for (absl::string_view line : absl::StrSplit(message, '\n')) {
    if (line == "READY=1") ++ready_;
    store |= line == "FDSTORE=1";
    remove |= line == "FDSTOREREMOVE=1";
    if (absl::ConsumePrefix(&line, "FDNAME=")) name = std::string(line);
  }
  if (remove) store_.erase(name);
  if (!store) return;
  for (UniqueFd& fd : fds) {
    if (store_.size() < limit_) store_.emplace(name, std::move(fd));
  }
}

}  // namespace mrd::e2e
