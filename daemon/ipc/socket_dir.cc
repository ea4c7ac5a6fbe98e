#include "daemon/ipc/socket_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

namespace mrd::ipc {
namespace {

// Empty where only another directory helps.
std::string AdviceFor(int error, const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path();
  switch (error) {
    case ENOENT:
      if (access(parent.c_str(), F_OK) == 0) return "";  // As in /proc.
      return absl::StrCat("make ", parent, " first");
    case EACCES:
    case EPERM:
      return "run mrd as a user who may";
    case EEXIST:
    case ENOTDIR:
    case ELOOP:
      return "remove what is in the way";
    case ENOSPC:
    case EDQUOT:
      return "free space there";
    case EROFS:
      return "mount its file system writable";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (LimitNOFILE)";
    default:
      return "";
  }
}

absl::Status Failed(absl::string_view what, const std::string& path) {
  const int error = errno;
  const std::string advice = AdviceFor(error, path);
  return absl::Status(
      absl::ErrnoToStatusCode(error),
      absl::StrCat("cannot ", what, " ", path, ": ", strerror(error), "; ", advice,
                   advice.empty() ? "" : ", or ", "give another directory with --socket-dir"));
}

std::string WithoutSlash(std::string dir) {
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

// `made`: whether it was not there.
absl::Status MakeDir(const std::string& dir, mode_t mode, struct stat* existing, bool* made) {
  *made = mkdir(dir.c_str(), mode) == 0;
  if (*made) {
    // mkdir is subject to the umask; a directory that was there keeps its owner's choice.
    return chmod(dir.c_str(), mode) == 0 ? absl::OkStatus() : Failed("set the mode of", dir);
  }
  if (errno != EEXIST) return Failed("make", dir);
  if (stat(dir.c_str(), existing) < 0) {
    if (errno == ENOENT) errno = EEXIST;  // A link that leads nowhere.
    return Failed("make", dir);
  }
  if (!S_ISDIR(existing->st_mode)) {
    errno = ENOTDIR;
    return Failed("use", dir);
  }
  return absl::OkStatus();
}

absl::Status NotSafe(const std::string& dir, absl::string_view why, absl::string_view advice) {
  return absl::PermissionDeniedError(absl::StrCat("will not use ", dir, ": ", why, "; ", advice));
}

bool IsOurs(const struct stat& dir) { return dir.st_uid == geteuid() || dir.st_uid == 0; }

absl::Status CheckOwner(const std::string& dir, const struct stat& existing) {
  if (IsOurs(existing)) return absl::OkStatus();
  return NotSafe(dir, absl::StrCat("it belongs to uid ", existing.st_uid),
                 "give it to the daemon's user or to root, or give another with --socket-dir");
}

absl::Status OpenToAll(const std::string& dir) {
  return NotSafe(dir, "everybody may write to it",
                 "set its mode to 0755 or 01777, or give another with --socket-dir");
}

// Whoever can rename in it could put a socket of their own in the place of ours, or a symbolic link
// in the place of one whose mode is being set. Its group is up to the administrator.
absl::Status MakeClientsDir(const std::string& dir, bool* made) {
  struct stat existing;
  if (auto status = MakeDir(dir, 0755, &existing, made); !status.ok() || *made) return status;
  if (auto ours = CheckOwner(dir, existing); !ours.ok()) return ours;
  if ((existing.st_mode & S_IWOTH) == 0 || (existing.st_mode & S_ISVTX) != 0) {
    return absl::OkStatus();
  }
  // As a volume of Kubernetes comes. With the sticky bit only its owner replaces a file.
  if (chmod(dir.c_str(), (existing.st_mode & 07777) | S_ISVTX) != 0) return OpenToAll(dir);
  return absl::OkStatus();
}

// Who attaches there is an admin, and who sits there is believed by admins: nobody else has any
// business in it. With --socket-dir /tmp/mrd any user could have made it first.
absl::Status MakeAdminDir(const std::string& dir, bool* made) {
  struct stat existing;
  if (auto status = MakeDir(dir, 0700, &existing, made); !status.ok() || *made) return status;
  struct stat link;
  if (lstat(dir.c_str(), &link) < 0) return Failed("look at", dir);
  if (!IsOurs(existing) || !IsOurs(link)) {
    const uid_t other = IsOurs(link) ? existing.st_uid : link.st_uid;
    return NotSafe(dir, absl::StrCat("it belongs to uid ", other, ", not to the daemon's"),
                   "remove it, or give another directory with --socket-dir");
  }
  if ((existing.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return NotSafe(dir, "its group or others may write to it", "set its mode to 0700");
  }
  // One that others may only look into is put right, if it may be.
  if ((existing.st_mode & 07777) != 0700) chmod(dir.c_str(), 0700);
  return absl::OkStatus();
}

// Whether `path` is (still) the file that is open. Its inode number is nobody else's meanwhile.
bool IsThere(const UniqueFd& file, const std::string& path) {
  struct stat open, there;
  return fstat(file.get(), &open) == 0 && lstat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

// Writes its pid into the locked file, for the one that is refused.
absl::StatusOr<UniqueFd> Lock(const std::string& dir) {
  const std::string path = dir + "/lock";
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) {
    struct stat other;
    if (errno != EACCES || stat(path.c_str(), &other) < 0) return Failed("open", path);
    return NotSafe(
        dir,
        absl::StrCat("its lock belongs to uid ", other.st_uid, ", whose mrd may be serving it"),
        "run mrd as that user, or give another directory with --socket-dir");
  }
  if (flock(lock.get(), LOCK_EX | LOCK_NB) < 0) {
    if (errno != EWOULDBLOCK) return Failed("lock", path);
    char pid[32] = "";
    const ssize_t length = pread(lock.get(), pid, sizeof pid - 1, 0);
    pid[length > 0 ? length : 0] = '\0';
    return absl::AlreadyExistsError(
        absl::StrCat("another mrd (pid ", strtok(pid, "\n") ? pid : "unknown", ") serves ", dir,
                     "; stop it, or give another directory with --socket-dir"));
  }
  // A daemon whose start fails removes its lock file: who opened it before gets a lock that is
  // none.
  if (!IsThere(lock, path)) return Lock(dir);
  const std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(lock.get(), 0) < 0 ||
      pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return Failed("write", path);
  }
  return lock;
}

// An address of this path. REQUIRES: it is short enough.
sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// ALREADY_EXISTS: somebody listens there. Socket units of a service manager hold no lock.
absl::Status CheckNotServed(const std::string& path, int type) {
  const UniqueFd probe(socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const sockaddr_un address = AddressOf(path);
  ucred peer{};
  socklen_t length = sizeof peer;
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
  } else if (errno != EAGAIN && errno != EPROTOTYPE) {
    return absl::OkStatus();  // Else it is full, or of another type.
  }
  // Who called listen(2) last: a daemon that was passed the socket calls it too.
  const std::string who = peer.pid == 1  ? "the service manager (pid 1), for its mrd.service,"
                          : peer.pid > 0 ? absl::StrCat("another mrd (pid ", peer.pid, ")")
                                         : "another process";
  return absl::AlreadyExistsError(
      absl::StrCat(who, " serves ", path,
                   "; stop it (systemctl stop mrd.socket mrd-attach.socket mrd-admin.socket "
                   "mrd.service), or give another directory with --socket-dir"));
}

// Left behind by a daemon that died: the lock says that it is nobody's.
absl::Status RemoveOldSocket(const std::string& path) {
  struct stat old;
  if (lstat(path.c_str(), &old) < 0) {
    return errno == ENOENT ? absl::OkStatus() : Failed("look at", path);
  }
  if (!S_ISSOCK(old.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path,
                     " is in the way and no socket, so it was not left by a daemon; move it "
                     "elsewhere, or give another directory with --socket-dir"));
  }
  if (unlink(path.c_str()) < 0 && errno != ENOENT) return Failed("remove the old", path);
  return absl::OkStatus();
}

// `file`: what it has made at `path`; set also where something fails after that.
absl::StatusOr<UniqueFd> Listen(const std::string& path, int type, mode_t mode,
                                std::optional<gid_t> group, UniqueFd* file) {
  if (path.size() >= sizeof sockaddr_un{}.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is longer than the ", sizeof sockaddr_un{}.sun_path - 1,
        " bytes that a socket's path may have; give a shorter directory with --socket-dir"));
  }
  UniqueFd socket(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return Failed("make a socket for", path);
  if (auto free = CheckNotServed(path, type); !free.ok()) return free;
  if (auto removed = RemoveOldSocket(path); !removed.ok()) return removed;
  // Nobody connects before mode and group are right: connect(2) is refused until listen(2).
  const sockaddr_un address = AddressOf(path);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) < 0) {
    return Failed("bind", path);
  }
  *file = UniqueFd(open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!*file) {
    const absl::Status failed = Failed("open", path);
    unlink(path.c_str());
    return failed;
  }
  if (group && chown(path.c_str(), -1, *group) < 0) return Failed("give the group to", path);
  if (chmod(path.c_str(), mode) < 0) return Failed("set the mode of", path);
  if (listen(socket.get(), SOMAXCONN) < 0) return Failed("listen on", path);
  return socket;
}

}  // namespace

std::string AdminDir(const std::string& dir) { return WithoutSlash(dir) + "-admin"; }

absl::Status CheckClientsDir(const std::string& dir) {
  struct stat existing;
  if (stat(dir.c_str(), &existing) < 0) return Failed("look at", dir);
  if (auto ours = CheckOwner(dir, existing); !ours.ok()) return ours;
  const bool open_to_all = (existing.st_mode & S_IWOTH) != 0 && (existing.st_mode & S_ISVTX) == 0;
  return open_to_all ? OpenToAll(dir) : absl::OkStatus();
}

absl::Status CheckAdminDir(const std::string& dir) {
  struct stat existing;
  if (stat(dir.c_str(), &existing) < 0) return Failed("look at", dir);
  if (auto ours = CheckOwner(dir, existing); !ours.ok()) return ours;
  if ((existing.st_mode & 077) == 0) return absl::OkStatus();
  return NotSafe(dir, "its group or others may look into it", "set its mode to 0700");
}

SocketDir SocketDir::Given(std::string dir, std::string admin_path, UniqueFd rpc, UniqueFd attach,
                           UniqueFd admin_attach) {
  SocketDir sockets;
  sockets.dir_ = std::move(dir);
  sockets.admin_path_ = std::move(admin_path);
  sockets.given_ = true;
  sockets.rpc = std::move(rpc);
  sockets.attach = std::move(attach);
  sockets.admin_attach = std::move(admin_attach);
  return sockets;
}

absl::StatusOr<SocketDir> SocketDir::Open(const SocketOptions& options) {
  const std::string dir = WithoutSlash(options.dir);
  const std::string admin_dir = AdminDir(dir);
  SocketDir sockets;
  sockets.dir_ = dir;
  sockets.admin_path_ = admin_dir + "/attach.sock";
  bool made_dir = false, made_admin_dir = false;
  auto made = MakeClientsDir(dir, &made_dir);
  if (made_dir) sockets.made_.push_back(dir);
  if (!made.ok()) return made;
  made = MakeAdminDir(admin_dir, &made_admin_dir);
  if (made_admin_dir) sockets.made_.push_back(admin_dir);
  if (!made.ok()) return made;
  auto lock = Lock(dir);
  if (!lock.ok()) {
    // Of two that start at once the other was faster: it uses them.
    if (absl::IsAlreadyExists(lock.status())) sockets.made_.clear();
    // Who may not lock there is told of the daemon of a service manager all the same.
    const std::string rpc = dir + "/mrd.sock";
    if (rpc.size() < sizeof sockaddr_un{}.sun_path && absl::IsPermissionDenied(lock.status())) {
      if (auto free = CheckNotServed(rpc, SOCK_STREAM); !free.ok()) return free;
    }
    return lock.status();
  }
  sockets.lock_ = *std::move(lock);
  if (made_dir) sockets.made_.push_back(dir + "/lock");

  const auto open = [&](std::string path, int type, mode_t mode, std::optional<gid_t> group,
                        UniqueFd* socket) {
    Bound& bound = sockets.bound_.emplace_back();
    bound.path = std::move(path);
    auto listening = Listen(bound.path, type, mode, group, &bound.file);
    if (!listening.ok()) return listening.status();
    *socket = *std::move(listening);
    return absl::OkStatus();
  };
  // The gRPC socket last: a client that finds it finds the others too.
  if (auto opened =
          open(sockets.admin_path_, SOCK_SEQPACKET, 0600, std::nullopt, &sockets.admin_attach);
      !opened.ok()) {
    return opened;
  }
  if (auto opened =
          open(dir + "/attach.sock", SOCK_SEQPACKET, options.mode, options.group, &sockets.attach);
      !opened.ok()) {
    return opened;
  }
  if (auto opened = open(dir + "/mrd.sock", SOCK_STREAM, options.mode, options.group, &sockets.rpc);
      !opened.ok()) {
    return opened;
  }
  sockets.made_.clear();
  return sockets;
}

SocketDir::~SocketDir() {
  // Where somebody removed the directories, or the lock, they may be another daemon's by now.
  for (auto bound = bound_.rbegin(); bound != bound_.rend(); ++bound) {
    if (IsThere(bound->file, bound->path)) unlink(bound->path.c_str());
  }
  // With the lock held: who gets it then finds no directory, and refuses to start.
  for (auto path = made_.rbegin(); path != made_.rend(); ++path) remove(path->c_str());
}

}  // namespace mrd::ipc
