// All parts of the daemon, wired together.
#ifndef MRD_DAEMON_DAEMON_H_
#define MRD_DAEMON_DAEMON_H_

#include "daemon/fabric/verbs/api.h"
#include "daemon/options.h"

namespace mrd {

// Runs until SIGTERM or SIGINT, then ends every session in order. A second signal ends the process
// at once. `verbs` is used where options.fabric is "verbs". Returns the exit status. Once in a
// process, on its first thread: it takes what a service manager has passed (sd_listen_fds(3)), and
// tells it how it is (sd_notify(3)).
int RunDaemon(const Options& options, fabric::verbs::Api& verbs);

}  // namespace mrd

#endif  // MRD_DAEMON_DAEMON_H_
