// mrctl status: the daemon, the limits that apply here, and for an admin all that is held.
#include <ctime>
#include <string>

#include "client/mrctl/admin.h"
#include "client/mrctl/command.h"
#include "client/mrctl/policy.h"
#include "client/mrctl/table.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

using mrd::v1::GetStatusResponse;

// Byte quotas are known by their name; others are counts.
std::string QuotaValue(const std::string& name, uint64_t value) {
  return name.find("bytes") == std::string::npos ? std::to_string(value) : FormatSize(value);
}

std::string TextOf(const GetStatusResponse& status) {
  const auto& session = status.session();
  std::string text = "mrd " + status.daemon_version() + ", fabric " + status.fabric();
  if (status.fabric() == "soft") text += " (in memory, no hardware: to develop against)";
  text += ", up " + FormatAge(time(nullptr) - status.start_time().seconds()) + "\n";
  text += "session " + std::to_string(session.session_id()) + ": pid " +
          (session.pid() == 0 ? "hidden" : std::to_string(session.pid())) + ", uid " +
          std::to_string(session.uid()) + ", gid " + std::to_string(session.gid()) +
          (session.admin() ? ", admin" : "") + "; its end is known by " + session.death() + "\n";
  if (status.has_drain()) text += DrainText(status.drain(), time(nullptr)) + "\n";
  if (status.has_totals()) {
    const auto& totals = status.totals();
    Table table({">SESSIONS", ">REGIONS", ">PINNED", ">ENDPOINTS", ">BUFFERS", ">MAPPED"});
    table.Add({std::to_string(totals.sessions()), std::to_string(totals.regions()),
               FormatSize(totals.pinned_bytes()), std::to_string(totals.endpoints()),
               std::to_string(totals.buffers()), std::to_string(totals.mapped_buffers())});
    text += "\n" + table.Text();
  }
  Table table({"LIMIT", ">USED", ">OF", ""});
  for (const auto& quota : status.quotas()) {
    const bool nearly = quota.limit() > 0 && quota.used() >= quota.limit() - quota.limit() / 10;
    table.Add({quota.name(), QuotaValue(quota.name(), quota.used()),
               QuotaValue(quota.name(), quota.limit()),
               quota.used() >= quota.limit() ? "full"
               : nearly                      ? "nearly full"
                                             : ""});
  }
  if (!table.empty()) text += "\n" + table.Text();
  if (status.has_policy()) text += "\n" + PolicyText(status.policy(), /*limits=*/false);
  return text;
}

}  // namespace

int RunStatus(const GlobalOptions& options) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto status = client->GetStatus();
  if (!status.ok()) return Fail(options, status.status());
  return options.json ? PrintJson(options, *status) : Print(options, TextOf(*status));
}

}  // namespace mrctl
