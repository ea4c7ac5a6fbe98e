// Steps around what goes to the store of descriptors: these stand between the daemon and libsystemd
// by the linker's --wrap.
#include <string.h>
#include <sys/types.h>

#include "tests/vm/dying/steps.h"

extern "C" {

int __real_sd_pid_notify_with_fds(pid_t pid, int unset_environment, const char* state,
                                  const int* fds, unsigned n_fds);
int __real_sd_notify(int unset_environment, const char* state);

int __wrap_sd_pid_notify_with_fds(pid_t pid, int unset_environment, const char* state,
                                  const int* fds, unsigned n_fds) {
  const dying::Stepped stepped("a descriptor goes into the store");
  return __real_sd_pid_notify_with_fds(pid, unset_environment, state, fds, n_fds);
}

int __wrap_sd_notify(int unset_environment, const char* state) {
  if (!strstr(state, "FDSTOREREMOVE=1")) return __real_sd_notify(unset_environment, state);
  const dying::Stepped stepped("a descriptor leaves the store");
  return __real_sd_notify(unset_environment, state);
}

}  // extern "C"
