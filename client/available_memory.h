// How much memory a buffer can take. Populating more than there is would not fail: the kernel's OOM
// killer would end this process, or another one.
#ifndef MRD_CLIENT_AVAILABLE_MEMORY_H_
#define MRD_CLIENT_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string>

namespace mrd::internal {

struct MemoryLimit {
  std::string name;             // For people.
  uint64_t limit = UINT64_MAX;  // Bytes.
  uint64_t used = 0;            // Of these, now; at most `limit`.

  uint64_t left() const { return limit - used; }
};

// Of the machine's memory, swap included, and the limit of this process's cgroup the one that
// leaves less; none where neither is known. A guess: others take memory too.
MemoryLimit TightestMemoryLimit();

// "MemAvailable" in text of the form of /proc/meminfo, in bytes; 0 where it is not there.
uint64_t MeminfoBytes(const std::string& meminfo, const std::string& name);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_AVAILABLE_MEMORY_H_
