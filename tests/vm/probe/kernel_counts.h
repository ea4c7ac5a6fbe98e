// What the kernel itself says is registered: what `rdma res` shows, without a program to start.
#ifndef TESTS_VM_PROBE_KERNEL_COUNTS_H_
#define TESTS_VM_PROBE_KERNEL_COUNTS_H_

#include <sys/types.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace probe {

// Memory regions of all processes on all devices; needs no privilege. Thread-safe.
absl::StatusOr<uint64_t> KernelRegions();

// VmPin of a process: bytes that are pinned on its account.
absl::StatusOr<uint64_t> KernelPinnedBytes(pid_t pid);

}  // namespace probe

#endif  // TESTS_VM_PROBE_KERNEL_COUNTS_H_
