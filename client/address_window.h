// Where the library maps buffers. A device that ignores the address a region is registered with
// (iWARP) needs the buffer at the client's address in the daemon too, while it registers: the
// daemon keeps this window free for that.
#ifndef MRD_CLIENT_ADDRESS_WINDOW_H_
#define MRD_CLIENT_ADDRESS_WINDOW_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace mrd::internal {

struct AddressWindow {
  uint64_t first;
  uint64_t last;  // Inclusive.
};

// That of this program: ThreadSanitizer aborts on mappings in the usual one.
AddressWindow WindowOfProgram();

// The start for a mapping of `size` bytes in `window`, a multiple of `alignment`, chosen by
// `random`. 0: there is no room. REQUIRES: alignment is a power of two, size > 0.
uint64_t PickAddress(const AddressWindow& window, uint64_t size, uint64_t alignment,
                     uint64_t random);

// Maps `size` bytes of `fd` from `offset`, MAP_SHARED, at a random place of the window that
// overlaps no mapping. Errors are mmap(2)'s, with errno. Thread-safe.
absl::StatusOr<void*> MapInWindow(const AddressWindow& window, int fd, uint64_t size,
                                  uint64_t alignment, int protection, off_t offset);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_ADDRESS_WINDOW_H_
