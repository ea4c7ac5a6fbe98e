// How much memory a buffer can take. Populating more than there is would not fail: the kernel's OOM
// killer would end this process, or another one.
#ifndef MRD_CLIENT_AVAILABLE_MEMORY_H_
#define MRD_CLIENT_AVAILABLE_MEMORY_H_

#include <cstdint>
#include <string>

namespace mrd::internal {

// Bytes that the machine has left, swap included, and that the limit of this process's cgroup
// leaves: the smaller of both. UINT64_MAX where neither is known. A guess: others take memory too.
uint64_t AvailableMemory();

// "MemAvailable" in text of the form of /proc/meminfo, in bytes; 0 where it is not there.
uint64_t MeminfoBytes(const std::string& meminfo, const std::string& name);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_AVAILABLE_MEMORY_H_
