// mrctl leases: every registered region, whose it is, and the key that peers use. --json
// has the lkeys too.
#include <string>

#include "client/mrctl/command.h"
#include "client/mrctl/table.h"
#include "client/mrctl/units.h"
#include "mrd/v1/status.h"

namespace mrctl {

int RunLeases(const GlobalOptions& options, uint64_t session_id) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto leases = client->ListAllLeases(session_id);
  if (!leases.ok()) {
    const int code = Fail(options, leases.status());
    // The session that was asked for, not this one's end.
    const bool theirs =
        mrd::ReasonOf(leases.status()) == mrd::v1::SESSION_UNKNOWN && client->SessionStatus().ok();
    return theirs ? kRefused : code;
  }
  if (options.json) {
    mrd::v1::ListAllLeasesResponse response;
    response.mutable_leases()->Add(leases->begin(), leases->end());
    return PrintJson(options, response);
  }
  if (leases->empty()) return Print(options, "no leases\n");
  Table table({">LEASE", ">SESSION", "DEVICE", "ADDRESS", ">LENGTH", "RKEY"});
  for (const auto& held : *leases) {
    const auto& lease = held.lease();
    for (const auto& key : lease.keys()) {
      table.Add({std::to_string(lease.lease_id()), std::to_string(held.session_id()), key.device(),
                 FormatAddress(lease.addr()), FormatSize(lease.length()), FormatKey(key.rkey())});
    }
  }
  return Print(options, table.Text());
}

}  // namespace mrctl
