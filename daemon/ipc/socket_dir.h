// The daemon's sockets in the file system. Where no service manager passes them, it makes them: who
// owns a path is decided by a locked file, before anything is unlinked.
#ifndef MRD_DAEMON_IPC_SOCKET_DIR_H_
#define MRD_DAEMON_IPC_SOCKET_DIR_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/unique_fd.h"

namespace mrd::ipc {

struct SocketOptions {
  std::string dir = "/run/mrd";
  mode_t mode = 0660;          // Of what clients connect to.
  std::optional<gid_t> group;  // Of what clients connect to; else the process' own.
};

// Where the admin socket lies: DIR-admin.
std::string AdminDir(const std::string& dir);

// Whether others could put a socket of theirs in the place of one in this directory, or a symbolic
// link. PERMISSION_DENIED where they could, with what to do; else an error of looking at it.
absl::Status CheckClientsDir(const std::string& dir);
// The same; and nobody but its owner may look into it, since who reaches its socket is an admin.
absl::Status CheckAdminDir(const std::string& dir);

// Removes the sockets that it made, but not the directories: bind mounts of them stay good.
class SocketDir {
 public:
  // Makes the directory (mode 0755) and that of admins (0700) where they are not there. Errors say
  // the path and what to do; that another daemon owns the directory, with its pid, or a service
  // manager's socket units do; that another user could replace the sockets in one of the
  // directories; that something else than a socket is in the place of one. On an error nothing that
  // it made is left, but for the lock file in a directory that was there.
  static absl::StatusOr<SocketDir> Open(const SocketOptions& options);
  // Sockets that are there, as Open makes them. Whoever made them owns their paths: nothing is
  // made, locked or removed here.
  static SocketDir Given(std::string dir, std::string admin_path, UniqueFd rpc, UniqueFd attach,
                         UniqueFd admin_attach);
  SocketDir(SocketDir&&) = default;
  ~SocketDir();

  const std::string& dir() const { return dir_; }
  // Where admins attach.
  const std::string& admin_path() const { return admin_path_; }
  // A service manager made them.
  bool given() const { return given_; }

  // Listening, not blocking. Each may be taken once.
  UniqueFd rpc;
  UniqueFd attach;
  UniqueFd admin_attach;

 private:
  SocketDir() = default;

  struct Bound {
    std::string path;
    UniqueFd file;  // O_PATH: what was made there, whatever has come in its place.
  };

  std::string dir_;
  std::string admin_path_;
  bool given_ = false;
  UniqueFd lock_;
  std::vector<std::string> made_;  // By an Open() that has not succeeded, the oldest first.
  std::vector<Bound> bound_;
};

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_SOCKET_DIR_H_
