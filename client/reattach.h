// Attaching again after the daemon has hung up: until it is back, and no longer than makes sense.
#ifndef MRD_CLIENT_REATTACH_H_
#define MRD_CLIENT_REATTACH_H_

#include <chrono>
#include <string>

#include "absl/status/statusor.h"
#include "client/attach_handshake.h"

namespace mrd::internal {

struct ReattachLimits {
  std::chrono::steady_clock::time_point give_up;
  // Before the first try, so that a client that is hung up on again and again does not hammer.
  std::chrono::milliseconds first_pause{0};
};

// Tries with growing pauses. `token`: of the session to go on with, which AttachWelcome.resumed
// answers; empty: a new one. Ends early with what refused it for good: SESSION_UNKNOWN, or, for a
// new session, anything but that the daemon is busy or ending. CANCELLED: `stop` could be read.
absl::StatusOr<Attached> Reattach(const AttachParameters& parameters, const std::string& token,
                                  const ReattachLimits& limits, int stop);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_REATTACH_H_
