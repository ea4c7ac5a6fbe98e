// The handshake of attach.proto, on a connected attach socket.
#ifndef MRD_CLIENT_ATTACH_HANDSHAKE_H_
#define MRD_CLIENT_ATTACH_HANDSHAKE_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "client/unique_fd.h"
#include "mrd/v1/attach.pb.h"

namespace mrd::internal {

struct AttachParameters {
  std::string path;    // Of the attach socket.
  bool admin = false;  // It is the admin socket.
  std::string name;
  std::chrono::milliseconds timeout;  // For each step: connecting, being welcomed, passing buffers.
};

// A session's connection, before anything was passed on it.
struct Attached {
  UniqueFd socket;
  v1::AttachWelcome welcome;
};

// Says hello on `socket` and is welcomed, or says why not. `token`: of the session to go on with;
// empty: a new one. `stop`, where it is not -1, ends it with CANCELLED when it can be read.
absl::StatusOr<v1::AttachWelcome> Handshake(int socket, const AttachParameters& parameters,
                                            const std::string& token, int stop);

// Connects and shakes hands, for a new session. Waits no longer than `parameters.timeout` for each.
absl::StatusOr<Attached> AttachOnce(const AttachParameters& parameters);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_ATTACH_HANDSHAKE_H_
