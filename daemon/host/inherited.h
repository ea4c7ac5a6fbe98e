// The descriptors that the service manager gave to this process: sockets of its socket units, and
// what an earlier run of the daemon had put into its store.
#ifndef MRD_DAEMON_HOST_INHERITED_H_
#define MRD_DAEMON_HOST_INHERITED_H_

#include <string>
#include <vector>

#include "daemon/unique_fd.h"

namespace mrd::host {

struct InheritedFd {
  std::string name;  // FileDescriptorName= of the unit, or the name it was stored under.
  UniqueFd fd;       // Close-on-exec.
};

std::vector<std::string> NamesOf(const std::vector<InheritedFd>& inherited);

// sd_listen_fds_with_names(3): all of them, in their order; empty where there are none or they are
// not this process's. Once, at the start of the program, before any thread is started: it takes
// $LISTEN_FDS and its like out of the environment.
std::vector<InheritedFd> TakeInherited();

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_INHERITED_H_
