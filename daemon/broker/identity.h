// Who a session is.
#ifndef MRD_DAEMON_BROKER_IDENTITY_H_
#define MRD_DAEMON_BROKER_IDENTITY_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace mrd::broker {

// Who a session is, by the kernel's word.
struct Identity {
  pid_t pid = 0;  // 0: hidden by a pid namespace.
  uid_t uid = 0;
  gid_t gid = 0;
  bool admin = false;
  std::vector<gid_t> groups = {};  // Supplementary ones.
  std::string cgroup = {};         // When it attached (cgroup v2); empty: not known.
  std::string comm;
  uint64_t start_time = 0;  // Of the process, in ticks since the boot (proc(5)); 0: not known.
  std::string death;  // How its end will be noticed: "pidfd", "pidfd of the client", "hang-up".
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_IDENTITY_H_
