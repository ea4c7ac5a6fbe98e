// Shared memory as a client would pass it.
#ifndef MRD_TESTS_MEMORY_MEMFD_H_
#define MRD_TESTS_MEMORY_MEMFD_H_

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <memory>

#include "daemon/memory/buffer.h"
#include "daemon/unique_fd.h"

namespace mrd::memory {

// fallocate(2) would not do: pages that nobody has touched are a hole to SEEK_HOLE.
inline bool Populate(int fd, uint64_t offset, uint64_t length) {
  void* mapped =
      mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return false;
  const bool done = madvise(mapped, length, MADV_POPULATE_WRITE) == 0;
  munmap(mapped, length);
  return done;
}

inline UniqueFd MakeMemfd(uint64_t size, bool populate = true, int seals = F_SEAL_SHRINK) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (ftruncate(fd.get(), static_cast<off_t>(size)) < 0) return {};
  if (populate && !Populate(fd.get(), 0, size)) return {};
  if (seals != 0) fcntl(fd.get(), F_ADD_SEALS, seals);
  return fd;
}

inline std::shared_ptr<Buffer> MakeBuffer(UniqueFd fd, Mappings& mappings) {
  auto facts = Inspect(fd.get());
  if (!facts.ok()) return nullptr;
  return std::make_shared<Buffer>(std::move(fd), *facts, mappings);
}

// Mappings of this process.
inline size_t CountMappings(const char* containing = "memfd:test") {
  FILE* maps = fopen("/proc/self/maps", "re");
  char line[512];
  size_t count = 0;
  while (fgets(line, sizeof line, maps)) count += strstr(line, containing) != nullptr;
  fclose(maps);
  return count;
}

}  // namespace mrd::memory

#endif  // MRD_TESTS_MEMORY_MEMFD_H_
