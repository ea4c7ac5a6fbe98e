// What to tell a person who asked for huge pages that the machine does not have.
#ifndef MRD_CLIENT_HUGE_PAGES_H_
#define MRD_CLIENT_HUGE_PAGES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace mrd::internal {

// `what` failed with `errno_value`, for want of 2 MiB pages of `bytes` together, it seems: how many
// are needed, how many are free, and the sysctl that makes more.
absl::Status HugePageError(std::string what, uint64_t bytes, int errno_value);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_HUGE_PAGES_H_
