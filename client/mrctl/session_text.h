// A session as the tables of several commands show it.
#ifndef MRD_CLIENT_MRCTL_SESSION_TEXT_H_
#define MRD_CLIENT_MRCTL_SESSION_TEXT_H_

#include <cstdint>
#include <string>

#include "mrd/v1/session.pb.h"

namespace mrctl {

// Its pid, or "hidden": by a pid namespace, from the daemon.
std::string PidOf(const mrd::v1::Session& session);

// What it calls itself and what its process is: "trainer: python3 train.py". Of `own` and of admins
// it says so, and of one that is ending.
std::string WhoOf(const mrd::v1::Session& session, uint64_t own);

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_SESSION_TEXT_H_
