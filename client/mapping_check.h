// Whether an address range of this process is what its owner says it is.
#ifndef MRD_CLIENT_MAPPING_CHECK_H_
#define MRD_CLIENT_MAPPING_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"

namespace mrd::internal {

// Whether all of [addr, addr + size) is a shared mapping of the object behind `fd`, which begins at
// `offset` of it: peers would else write pages that this process never sees. ADDRESS_UNUSABLE says
// where it is not. OK where /proc/self/maps cannot be read (a chroot without it). Another thread
// that changes the range meanwhile is not noticed. Not for dma-bufs: some drivers map them as a
// device's file.
absl::Status CheckMapping(int fd, const void* addr, uint64_t size, uint64_t offset);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_MAPPING_CHECK_H_
