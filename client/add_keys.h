// Keys in the newest generation of a device, for regions that were registered before a restart of
// the daemon: connections made since reach them by no other.
#ifndef MRD_CLIENT_ADD_KEYS_H_
#define MRD_CLIENT_ADD_KEYS_H_

#include <string>

#include "absl/status/status.h"
#include "client/rekeyed.h"
#include "client/session.h"
#include "mrd/v1/endpoint.pb.h"

namespace mrd::internal {

// Passes the buffers of all live regions again and adds their keys. `rekeyed` gets those whose keys
// have changed, and those that got none. Not OK: the first refusal.
absl::Status AddKeys(Session& session, Rekeyed* rekeyed);

// The same for the regions that a peer over `endpoint`, which lies in `domain`, does not reach yet;
// AttachOptions::on_rekeyed is told. Asks nobody where the daemon was never restarted.
void AddKeysFor(Session& session, const v1::Endpoint& endpoint, const std::string& domain);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_ADD_KEYS_H_
