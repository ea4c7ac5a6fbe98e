#include "daemon/ipc/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "daemon/broker/policy/text.h"
#include "daemon/log.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // include/uapi/asm-generic/socket.h, Linux 6.5
#endif

namespace mrd::ipc {

absl::StatusOr<Peer> PeerOf(int socket, bool peer_pidfd) {
  ucred credentials;
  socklen_t length = sizeof credentials;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0) {
    return absl::ErrnoToStatus(errno, "SO_PEERCRED");
  }
  Peer peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.gid = credentials.gid;
  int pidfd = -1;
  length = sizeof pidfd;
  if (peer_pidfd && getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) {
    peer.pidfd.reset(pidfd);
    peer.proven = true;
  } else if (peer.pid > 0) {
    peer.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  }
  return peer;
}

bool HasEnded(const UniqueFd& pidfd) {
  pollfd poll_fd{pidfd.get(), POLLIN, 0};
  return poll(&poll_fd, 1, 0) > 0;
}

bool IsPidfd(int fd) {
  char path[64];
  char target[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(path, target, sizeof target);
  const absl::string_view name(target, length > 0 ? length : 0);
  return name == "anon_inode:[pidfd]" || absl::StartsWith(name, "pidfd:[");  // pidfs, Linux 6.9
}

std::optional<std::vector<gid_t>> GroupsOf(int socket) {
  std::vector<gid_t> groups(32);
  // The kernel says how many there are where they do not fit; they do not change any more.
  for (int attempt = 0; attempt < 2; ++attempt) {
    socklen_t bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    const int result = getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes);
    if (result < 0 && errno != ERANGE) break;
    if (bytes / sizeof(gid_t) > kMostGroups) return std::nullopt;
    groups.resize(bytes / sizeof(gid_t));
    if (result == 0) return groups;
  }
  return std::vector<gid_t>();
}

std::string UnifiedCgroup(std::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    // "0::PATH" (cgroups(7)). A path has no newline: the kernel does not let one be made.
    if (line.substr(0, 3) == "0::") return policy::Printable(line.substr(3));
    if (end == text.npos) break;
    text.remove_prefix(end + 1);
  }
  return "";
}

std::string CgroupOf(const Peer& peer) {
  if (peer.pid == 0 || !peer.pidfd) return "";
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/cgroup", peer.pid);
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return "";
  // A line a hierarchy, and the unified one is the last of them.
  constexpr size_t kMostBytes = 128 << 10;
  std::string text;
  char part[4096];
  ssize_t count;
  while ((count = read(file.get(), part, sizeof part)) > 0 && text.size() < kMostBytes) {
    text.append(part, count);
  }
  // Of a process that lives still the pid was its own all the while.
  return count == 0 && !HasEnded(peer.pidfd) ? UnifiedCgroup(text) : "";
}

policy::Subject SubjectOf(const Peer& peer, int socket, bool admin) {
  policy::Subject subject{.uid = peer.uid, .cgroup = CgroupOf(peer), .admin = admin};
  if (auto groups = GroupsOf(socket)) subject.gids = *std::move(groups);
  subject.gids.push_back(peer.gid);
  return subject;
}

UniqueFd OpenCommandLine(pid_t pid) {
  if (pid == 0) return UniqueFd();
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
  return UniqueFd(open(path, O_RDONLY | O_CLOEXEC));
}

std::string ReadCommandLine(int fd) {
  char text[kMostCommandLine];
  ssize_t length = read(fd, text, sizeof text);
  while (length > 0 && text[length - 1] == '\0') --length;
  std::string line(text, length > 0 ? length : 0);
  std::replace(line.begin(), line.end(), '\0', ' ');
  return log::Escaped(line, kMostCommandLine);
}

uint64_t StartTimeOf(pid_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return 0;
  char text[1024];
  const ssize_t length = read(file.get(), text, sizeof text - 1);
  if (length <= 0) return 0;
  text[length] = '\0';
  // The command name is in parentheses, and may have some itself (proc(5)).
  const char* const after = strrchr(text, ')');
  char state = 'Z';
  unsigned long long start = 0;
  if (!after ||
      sscanf(after + 1,
             " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
             "%llu",
             &state, &start) != 2) {
    return 0;
  }
  return state == 'Z' || state == 'X' ? 0 : start;
}

std::string CommOf(pid_t pid) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/comm", pid);
  const UniqueFd file(open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return "";
  char text[64];
  ssize_t length = read(file.get(), text, sizeof text);
  if (length > 0 && text[length - 1] == '\n') --length;
  std::string comm(text, length > 0 ? length : 0);
  // The process chose these bytes: they go to terminals, and into messages that must be UTF-8.
  for (char& c : comm) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return comm;
}

}  // namespace mrd::ipc
