// The daemon's sockets in the file system, where no systemd passes them. Who owns a path is decided
// by a locked file, before anything is unlinked.
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

// Removes the sockets that it made, but not the directories: bind mounts of them stay good.
class SocketDir {
 public:
  // Makes the directory (mode 0755) and that of admins (0700) where they are not there. Errors say
  // the path and what to do; that another daemon owns the directory, with its pid; that another
  // user could replace the sockets in one of the directories; that something else than a socket is
  // in the place of one. On an error nothing that it made is
  // left, but for the lock file in a directory that was there.
  static absl::StatusOr<SocketDir> Open(const SocketOptions& options);
  SocketDir(SocketDir&&) = default;
  ~SocketDir();

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

  UniqueFd lock_;
  std::vector<std::string> made_;  // By an Open() that has not succeeded, the oldest first.
  std::vector<Bound> bound_;
};

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_SOCKET_DIR_H_
