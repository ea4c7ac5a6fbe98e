#include "client/connect_error.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>
#include <vector>

#include "client/local_error.h"

namespace mrd::internal {
namespace {

constexpr std::string_view kAdminEnd = "-admin";

std::string Parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string GroupName(gid_t gid, bool names) {
  if (!names) return std::to_string(gid);
  std::vector<char> buffer(4096);
  group entry;
  group* found = nullptr;
  if (getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found) == 0 && found) {
    return found->gr_name;
  }
  return std::to_string(gid);
}

std::string UserName(uid_t uid, bool names) {
  if (!names) return std::to_string(uid);
  std::vector<char> buffer(4096);
  passwd entry;
  passwd* found = nullptr;
  if (getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found) {
    return found->pw_name;
  }
  return std::to_string(uid);
}

std::string Describe(const std::string& path, const struct stat& st, bool names) {
  char mode[8];
  snprintf(mode, sizeof(mode), "%04o", st.st_mode & 07777);
  return path + " (mode " + mode + ", " + UserName(st.st_uid, names) + ":" +
         GroupName(st.st_gid, names) + ")";
}

bool EndsWith(const std::string& text, std::string_view end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Advice if the user gave a socket, or the admin directory, instead of the clients' directory; else
// empty.
std::string NearMiss(std::string directory, bool admin) {
  if (admin && EndsWith(directory, kAdminEnd)) {
    directory.resize(directory.size() - kAdminEnd.size());  // What was given.
  }
  if (EndsWith(directory, ".sock")) {
    return "Give the directory of the sockets, " + Parent(directory) + ".";
  }
  if (!EndsWith(directory, kAdminEnd)) return "";
  const std::string clients = directory.substr(0, directory.size() - kAdminEnd.size());
  if (access(clients.c_str(), F_OK) != 0) return "";
  return directory + " is for admins: give " + clients +
         "; an admin session (mrctl: --admin) adds '-admin' itself.";
}

// connect(2) needs write permission on the socket and search permission on each directory above.
// `advice`, where it is not empty, is better than what this finds.
absl::Status PermissionError(const std::string& path, bool admin, int errno_value,
                             std::string advice, bool names) {
  const std::string who = "user " + UserName(geteuid(), names) + " may not use ";
  std::string blocked = path;
  struct stat st;
  // Where a directory bars the way, the socket cannot even be looked at: name that directory.
  while (stat(blocked.c_str(), &st) != 0 && blocked != "/" && blocked != ".") {
    blocked = Parent(blocked);
  }
  const bool searchable = blocked == path;
  const mode_t needed = searchable ? S_IWGRP : S_IXGRP;
  // Group 0 is nobody's to be added to.
  if (advice.empty() && (st.st_mode & needed) && st.st_gid != 0) {
    const std::string group = GroupName(st.st_gid, names);
    advice = "Add the user to group " + group + " (usermod -aG " + group +
             " NAME, then log in anew), or run the container with that supplementary group.";
  } else if (advice.empty()) {
    advice = "Run this as " + UserName(st.st_uid, names) + " (sudo)" +
             (admin ? "." : ", or let a group in: mrd's --socket-group and --socket-mode.");
  }
  return LocalError(absl::StatusCode::kPermissionDenied,
                    "cannot attach over " + path + ": " + who + Describe(blocked, st, names),
                    errno_value, advice);
}

}  // namespace

absl::Status ConnectError(const std::string& path, bool admin, int errno_value, bool names) {
  const std::string what = "cannot attach over " + path;
  const std::string directory = Parent(path);
  const std::string near = NearMiss(directory, admin);
  switch (errno_value) {
    case ENOENT:
    case ENOTDIR:
      if (!near.empty()) {
        return LocalError(absl::StatusCode::kUnavailable, what, errno_value, near);
      }
      if (errno_value == ENOTDIR || access(directory.c_str(), F_OK) != 0) {
        return LocalError(
            absl::StatusCode::kUnavailable, what + " (no directory " + directory + ")", errno_value,
            admin ? "Admins attach over it, on the host itself: it is never given to "
                    "containers. See whether mrd runs."
                  : "In a container: mount the host's socket directory there. On the host: start "
                    "mrd. Elsewhere: set MRD_SOCKET_DIR (mrctl: --socket-dir) to the "
                    "directory.");
      }
      return LocalError(absl::StatusCode::kUnavailable, what, errno_value,
                        "The directory is there, the daemon's socket is not: start mrd, or set "
                        "MRD_SOCKET_DIR (mrctl: --socket-dir) to the directory it uses.");
    case ECONNREFUSED:
      return LocalError(absl::StatusCode::kUnavailable, what, errno_value,
                        "The socket is there, but mrd does not run: start it.");
    case EACCES:
    case EPERM:
      return PermissionError(path, admin, errno_value, near, names);
    case EPROTOTYPE:
      return LocalError(absl::StatusCode::kUnavailable, what, errno_value,
                        "Another program's socket is there: MRD_SOCKET_DIR must name the "
                        "directory of mrd.");
    case EAGAIN:
      return LocalError(absl::StatusCode::kDeadlineExceeded, what, errno_value,
                        "mrd does not take connections: it is overloaded or stuck; see its log.");
    case EMFILE:
    case ENFILE:
      return LocalError(absl::StatusCode::kResourceExhausted, what, errno_value,
                        "Raise the limit of open files (ulimit -n) of this process.");
    default:
      return LocalError(absl::StatusCode::kUnavailable, what, errno_value, "");
  }
}

absl::Status CheckRpcSocket(const std::string& socket_dir) {
  const std::string path = socket_dir + "/mrd.sock";
  if (access(path.c_str(), F_OK) == 0 || errno != ENOENT) return absl::OkStatus();
  const std::string near = NearMiss(socket_dir, /*admin=*/false);
  return LocalError(absl::StatusCode::kUnavailable, "cannot call the daemon over " + path, ENOENT,
                    !near.empty() ? near
                                  : "The attach socket is there, this one is not: MRD_SOCKET_DIR "
                                    "must name the directory of mrd, and a container needs all "
                                    "of it.");
}

}  // namespace mrd::internal
