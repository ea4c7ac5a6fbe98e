// What became of a session's regions when the daemon was restarted: what AttachOptions::on_rekeyed
// tells.
#ifndef MRD_CLIENT_REKEYED_H_
#define MRD_CLIENT_REKEYED_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "client/region_key.h"

namespace mrd {

// What the library does when the session was lost: its daemon has ended and taken it along, or did
// not know it any more when it was back. (Where the daemon kept it the session goes on either way.)
enum class OnLoss {
  // Attaches anew, opens the named domains again, and registers every live region again: under new
  // leases, with new keys. Regions, buffers and the Client stay valid; endpoints have ended.
  kRestore,
  // The session has ended: AttachOptions::on_lost.
  kTell,
};

// A region whose keys have changed.
struct RekeyedRegion {
  uint64_t old_lease_id = 0;
  uint64_t lease_id =
      0;  // The same where only keys were added; 0: `status` says why there is none.
  uint64_t addr = 0;
  uint64_t length = 0;
  std::vector<RegionKey> old_keys = {};
  std::vector<RegionKey> keys = {};  // All that it has now; see Region::keys().
  // Not OK: it could not be registered again, and has ended; or its keys in the newest generation
  // could not be added, and it is as it was.
  absl::Status status = {};
};

struct Rekeyed {
  enum class Why {
    kRestored,       // The session was lost, and is another one now (OnLoss::kRestore).
    kNewGeneration,  // Keys were added for connections made after a restart of the daemon.
  };
  // A named domain that could not be opened again: regions in it have ended with that status.
  struct Domain {
    std::string name;
    absl::Status status;
  };

  Why why = Why::kRestored;
  uint64_t session_id = 0;                  // As it is now.
  std::vector<RekeyedRegion> regions = {};  // kRestored: all that were live.
  std::vector<Domain> lost_domains = {};
};

}  // namespace mrd

#endif  // MRD_CLIENT_REKEYED_H_
