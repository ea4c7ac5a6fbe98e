// What systemd is to the daemon, and nothing more: it listens on its sockets, keeps what it stores,
// and starts it again. In milliseconds, since it forks what is loaded already.
#ifndef TESTS_VM_DYING_SUPERVISOR_H_
#define TESTS_VM_DYING_SUPERVISOR_H_

#include <functional>
#include <string>

#include "tests/vm/dying/control.h"

namespace dying {

// Starts `daemon` again and again, each in a child with the sockets of `dir` and what the ones
// before have stored, as sd_listen_fds(3) and sd_notify(3) have it. Comes back with an exit status
// where that cannot go on. Who ends it ends the daemon. REQUIRES: this process has no threads, and
// `dir` and `dir`-admin are there.
int Supervise(Control& control, const std::string& dir, const std::function<int()>& daemon);

}  // namespace dying

#endif  // TESTS_VM_DYING_SUPERVISOR_H_
