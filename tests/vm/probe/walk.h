// A random walk: clients register, deregister, renew, are refused, let leases lapse and are killed,
// many at once. At quiet points the daemon's books, the kernel's count of regions, what the kernel
// says is pinned, and what the walk itself expects must be the same.
#ifndef TESTS_VM_PROBE_WALK_H_
#define TESTS_VM_PROBE_WALK_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace probe {

struct WalkOptions {
  pid_t daemon = 0;
  uint64_t clients = 0;
  uint64_t operations = 0;
  uint64_t seed = 0;
  std::chrono::milliseconds second{0};  // Within which what ended must be gone, where it is slow.
  std::vector<std::string> devices;     // The last one takes no addresses but the library's.
  std::vector<std::string> client;      // The command that starts one.
};

// REQUIRES: this process has no threads, nobody else has sessions, and it may attach as an admin.
// Prints what it did, and what was wrong. The exit code.
int RunWalk(const WalkOptions& options);

}  // namespace probe

#endif  // TESTS_VM_PROBE_WALK_H_
