// Making again, in a new session, what there was in one that was lost with its daemon: the named
// domains that were open, and every live region.
#ifndef MRD_CLIENT_RESTORE_H_
#define MRD_CLIENT_RESTORE_H_

#include "client/rekeyed.h"
#include "client/rpc.h"
#include "client/session.h"

namespace mrd::internal {

// SessionOptions::restore. Regions change only where all has been tried: what `rekeyed` tells is
// against what the user knows, however often it was broken off.
bool Restore(Session& session, const Rpc::Restorer& restorer, Rekeyed* rekeyed);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_RESTORE_H_
