// The truth: what the kernel has in the contexts that the daemon holds, of every run that opened
// one.
#ifndef TESTS_VM_KILLS_KERNEL_H_
#define TESTS_VM_KILLS_KERNEL_H_

#include <sys/types.h>

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kills {

// A registration, as the kernel, the books and a client each know it.
struct Key {
  std::string device;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
  uint64_t addr = 0;
  uint64_t length = 0;
  auto operator<=>(const Key&) const = default;
};

struct KernelView {
  struct OfDevice {
    uint64_t contexts = 0;
    uint64_t domains = 0;  // librdmacm has one of its own in each context that it has used.
    uint64_t queue_pairs = 0;
    uint64_t completion_queues = 0;
    auto operator<=>(const OfDevice&) const = default;
  };
  std::vector<Key> keys;  // Sorted.
  std::map<std::string, OfDevice> devices;
};

// Of the process `daemon`, whose descriptors are looked through. UNAVAILABLE: what it holds changed
// meanwhile, or there are regions on the machine that lie in no context of its.
absl::StatusOr<KernelView> LookAtKernel(pid_t daemon);

}  // namespace kills

#endif  // TESTS_VM_KILLS_KERNEL_H_
