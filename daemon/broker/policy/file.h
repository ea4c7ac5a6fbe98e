// A policy file.
#ifndef MRD_DAEMON_BROKER_POLICY_FILE_H_
#define MRD_DAEMON_BROKER_POLICY_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace mrd::policy {

inline constexpr char kDefaultFile[] = "/etc/mrd/mrd.textproto";

// All of it. Errors, with the file's name and errno's text: NOT_FOUND where there is none; what
// cannot be opened or read, is no regular file, or is larger than kMostFileBytes. Never waits for
// another process (a FIFO is no regular file).
absl::StatusOr<std::string> ReadPolicyFile(const std::string& path);

}  // namespace mrd::policy

#endif  // MRD_DAEMON_BROKER_POLICY_FILE_H_
