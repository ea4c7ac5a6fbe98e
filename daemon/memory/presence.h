// Which pages of a shared-memory file are there.
#ifndef MRD_DAEMON_MEMORY_PRESENCE_H_
#define MRD_DAEMON_MEMORY_PRESENCE_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace mrd::memory {

// How many bytes of [offset, offset + length) lie in pages that are in memory, from `offset` on to
// the first that is not; at most `length`. A page that was swapped out, or that only fallocate(2)
// made, is not; nor is any page of a file whose mode lets this process neither own nor write it.
// Makes no page, and takes no lock that a client can hold. It costs about 0.1 us a page, whatever
// else the file holds; `stop` is asked every 16 MiB, and true ends it. REQUIRES: `fd` is of a file
// of a tmpfs (memfd, POSIX shm) without huge pages of hugetlbfs (mincore(2) knows those only by
// one's own page table). Errors: DEVICE_ERROR with the errno of mmap(2); CANCELLED: stopped.
absl::StatusOr<uint64_t> PresentFrom(int fd, uint64_t offset, uint64_t length,
                                     absl::FunctionRef<bool()> stop);

}  // namespace mrd::memory

#endif  // MRD_DAEMON_MEMORY_PRESENCE_H_
