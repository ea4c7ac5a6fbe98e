// Clients that die: one after the other attaches, registers, and is killed at a random moment.
#ifndef TESTS_VM_PROBE_STORM_H_
#define TESTS_VM_PROBE_STORM_H_

#include <cstdint>
#include <string>

namespace probe {

struct StormOptions {
  uint64_t clients = 0;
  uint64_t seed = 0;
  uint64_t regions = 0;  // Of each client, in one call.
  std::string device;
};

// Forks: REQUIRES that this process has no threads. Prints how far they had come. The exit code.
int RunStorm(const StormOptions& options);

}  // namespace probe

#endif  // TESTS_VM_PROBE_STORM_H_
