// Who is at the other end of an attach socket, by the kernel's word.
#ifndef MRD_DAEMON_IPC_PEER_H_
#define MRD_DAEMON_IPC_PEER_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/broker/policy/policy.h"
#include "daemon/unique_fd.h"

namespace mrd::ipc {

// The uid that an id which this user namespace does not know is shown as
// (/proc/sys/kernel/overflowuid).
inline constexpr uid_t kOverflowUid = 65534;

struct Peer {
  pid_t pid = 0;  // 0: of another pid namespace.
  uid_t uid = 0;
  gid_t gid = 0;
  UniqueFd pidfd;  // Readable when the process has ended.
  bool proven =
      false;  // The pidfd is of the process that connected, not of one that took its pid since.
};

// SO_PEERCRED and, where `peer_pidfd` and the kernel (6.5) allow, SO_PEERPIDFD. On older kernels
// pidfd_open(2) of the pid, which proves nothing before the peer has answered a challenge. Fails
// only with a socket that is not connected.
absl::StatusOr<Peer> PeerOf(int socket, bool peer_pidfd);

// Whether the process has ended.
bool HasEnded(const UniqueFd& pidfd);

// Whether a received descriptor is a pidfd. Asks no file system.
bool IsPidfd(int fd);

// The supplementary groups that the peer had when it connected (SO_PEERGROUPS). Nothing: more than
// kMostGroups, which are kept of each session and connection, and looked at by each rule that names
// gids. The kernel lets a process have 65,536, the same one many times over.
inline constexpr size_t kMostGroups = 1024;
std::optional<std::vector<gid_t>> GroupsOf(int socket);

// The cgroup (v2) of the peer, as /proc/PID/cgroup shows it here; what no terminal takes is '?'.
// Empty where it is not known: the pid is hidden, there is no unified hierarchy, /proc does not
// show it (hidepid), or the process has ended, whose pid may be another's.
std::string CgroupOf(const Peer& peer);

// Who it is to the policy, as far as it can be known; without groups where they are too many.
policy::Subject SubjectOf(const Peer& peer, int socket, bool admin);

// The path in the text of /proc/PID/cgroup; empty: there is none.
std::string UnifiedCgroup(std::string_view text);

// Where the arguments of a process can be read, that of this pid and no other, whoever has it
// later: an open /proc file stands for its process. Empty where it cannot be opened.
UniqueFd OpenCommandLine(pid_t pid);

// What it reads there: at most kMostCommandLine bytes of it, with spaces between the arguments and
// all else that no terminal takes escaped. The pages are the process's own, and it can make who
// reads them wait for ever (userfaultfd, FUSE): only for a thread that nobody waits for.
inline constexpr size_t kMostCommandLine = 256;
std::string ReadCommandLine(int fd);

// When a process began, in ticks since the boot: with its pid it is told from all others, of this
// boot. 0: there is none of this pid (a zombie is none), or it is not shown.
uint64_t StartTimeOf(pid_t pid);

// The command name of a process; empty where it cannot be read.
std::string CommOf(pid_t pid);

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_PEER_H_
