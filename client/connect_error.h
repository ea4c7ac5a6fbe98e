// Why a socket of the daemon could not be reached, said so that the reader knows what to do: most
// first contacts with mrd end here.
#ifndef MRD_CLIENT_CONNECT_ERROR_H_
#define MRD_CLIENT_CONNECT_ERROR_H_

#include <string>

#include "absl/status/status.h"

namespace mrd::internal {

// For `errno_value` of connect(2) on `path`, the admin socket if `admin`. UNAVAILABLE,
// PERMISSION_DENIED (EACCES, EPERM) or DEADLINE_EXCEEDED (EAGAIN: the queue of connections stayed
// full). Users and groups are told by name where `names`, which may take long to look up
// (nsswitch.conf(5)), else by number.
absl::Status ConnectError(const std::string& path, bool admin, int errno_value, bool names);

// OK where `socket_dir` has the gRPC socket, which the daemon makes last of all; else UNAVAILABLE.
// Asked once a session is welcomed: its calls would only try again and again.
absl::Status CheckRpcSocket(const std::string& socket_dir);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_CONNECT_ERROR_H_
