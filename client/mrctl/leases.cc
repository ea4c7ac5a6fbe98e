// mrctl leases: every registered region, whose it is, and the key that peers use.
#include <unistd.h>

#include <ctime>
#include <string>

#include "client/mrctl/command.h"
#include "client/mrctl/table.h"
#include "client/mrctl/terminal.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

using mrd::v1::HeldLease;
using mrd::v1::Lease;

// Until it lapses; "-": it lasts as long as its session.
std::string Remains(const Lease& lease) {
  return lease.has_remaining() ? FormatShortAge(lease.remaining().seconds()) : "-";
}

std::string DomainOf(const Lease& lease) {
  return lease.domain().empty() ? "private" : lease.domain();
}

std::string Narrow(const std::vector<HeldLease>& leases) {
  Table table({">LEASE", ">SESSION", "DEVICE", ">LENGTH", "RKEY", ">REMAINS", "DOMAIN"});
  for (const HeldLease& held : leases) {
    const Lease& lease = held.lease();
    for (const auto& key : lease.keys()) {
      table.Add({std::to_string(lease.lease_id()), std::to_string(held.session_id()), key.device(),
                 FormatSize(lease.length()), FormatKey(key.rkey()), Remains(lease),
                 DomainOf(lease)});
    }
  }
  return table.Text(WidthOf(STDOUT_FILENO));
}

std::string Wide(const std::vector<HeldLease>& leases) {
  Table table({">LEASE", ">SESSION", "DEVICE", ">GEN", "ADDRESS", ">LENGTH", ">BUFFER", ">OFFSET",
               "LKEY", "RKEY", ">REMAINS", "DOMAIN", "ACCESS"});
  for (const HeldLease& held : leases) {
    const Lease& lease = held.lease();
    std::vector<mrd::v1::AccessFlag> access;
    for (const int flag : lease.access_flags()) access.push_back(mrd::v1::AccessFlag(flag));
    for (const auto& key : lease.keys()) {
      table.Add({std::to_string(lease.lease_id()), std::to_string(held.session_id()), key.device(),
                 std::to_string(key.generation()), FormatAddress(lease.addr()),
                 FormatSize(lease.length()), std::to_string(lease.buffer_id()),
                 FormatSize(lease.offset()), FormatKey(key.lkey()), FormatKey(key.rkey()),
                 Remains(lease), DomainOf(lease), FormatAccess(access)});
    }
  }
  return table.Text();
}

}  // namespace

int RunLeases(const GlobalOptions& options, uint64_t session_id, bool wide) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto leases = client->ListAllLeases(session_id);
  if (!leases.ok()) return Fail(options, leases.status());
  if (options.json) {
    mrd::v1::ListAllLeasesResponse response;
    response.mutable_leases()->Add(leases->begin(), leases->end());
    return PrintJson(options, response);
  }
  if (leases->empty()) return Print(options, "no leases\n");
  return Print(options, wide ? Wide(*leases) : Narrow(*leases));
}

}  // namespace mrctl
