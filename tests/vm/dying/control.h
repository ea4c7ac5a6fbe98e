// What whoever tests says to a daemon that dies where it is told to, and hears of it: a page of
// memory that both map.
#ifndef TESTS_VM_DYING_CONTROL_H_
#define TESTS_VM_DYING_CONTROL_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace dying {

// The file is as long as this, and begins as zeros. A daemon's steps are what lies between any two
// of which it may be killed: each ledger store, each call that changes the kernel and each message
// to the store of descriptors is two, its beginning and its end.
struct Control {
  std::atomic<uint64_t> steps;  // Taken since somebody set it to 0.
  std::atomic<uint64_t>
      die_at;  // The step that is the daemon's last, by that count; 0: none. Once.
  // Not empty: by a count of the steps that are called so. Set while die_at is 0.
  char die_what[64];
  std::atomic<uint64_t> then_die_at;  // What die_at is for the next daemon, which counts from 0.
  std::atomic<uint64_t> starts;       // Of daemons.
  std::atomic<uint64_t> deaths;       // At a step.
  std::atomic<uint64_t> ends;  // Any other way than by SIGKILL: known to the supervisor alone.
  std::atomic<pid_t> pid;      // Of the daemon that was started last.
  char last_step[64];          // At which one died.
};

// The control of this file, for the life of the process; null with errno.
Control* MapControl(const std::string& path);

}  // namespace dying

#endif  // TESTS_VM_DYING_CONTROL_H_
