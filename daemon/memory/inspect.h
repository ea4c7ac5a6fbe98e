// What a received descriptor is. A client may send anything: a pipe, a directory, a file of a FUSE
// server that never answers. No question asked here can be delayed by whoever serves the file.
#ifndef MRD_DAEMON_MEMORY_INSPECT_H_
#define MRD_DAEMON_MEMORY_INSPECT_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace mrd::memory {

enum class Kind {
  kShmem,    // memfd, POSIX shm, any file of a tmpfs
  kHugetlb,  // hugetlb memfd, file of a hugetlbfs
  kDmaBuf,
};

struct Facts {
  Kind kind = Kind::kShmem;
  uint64_t size = 0;       // Bytes, now: a file that is not sealed against growing may grow.
  uint32_t page_size = 0;  // Bytes; of a huge page for kHugetlb.
  int seals = 0;           // F_SEAL_*; 0 for a dma-buf.
  bool writable = false;   // Opened O_RDWR.
};

// Errors: NOT_SHARED_MEMORY, with a word on what it is.
absl::StatusOr<Facts> Inspect(int fd);

}  // namespace mrd::memory

#endif  // MRD_DAEMON_MEMORY_INSPECT_H_
