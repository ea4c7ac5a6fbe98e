// Errors that arise in the client's own process: the daemon was not asked or could not be reached,
// so there is no Reason, but errno and advice travel as they do in a refusal.
#ifndef MRD_CLIENT_LOCAL_ERROR_H_
#define MRD_CLIENT_LOCAL_ERROR_H_

#include <string>

#include "absl/status/status.h"

namespace mrd::internal {

// The message is "`what`: text of errno. `advice`"; errno_value 0 leaves out the middle, an empty
// advice the end.
absl::Status LocalError(absl::StatusCode code, std::string what, int errno_value,
                        std::string advice);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_LOCAL_ERROR_H_
