// mrctl generations: what of before a restart of the daemon is still held, and asking clients off
// it.
#include <string>

#include "client/mrctl/admin.h"
#include "client/mrctl/table.h"
#include "client/mrctl/terminal.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

std::string StoreText(const mrd::v1::ListGenerationsResponse& response) {
  if (!response.has_store()) {
    return "no store: the end of the daemon is the end of all sessions\n";
  }
  const mrd::v1::Store& store = response.store();
  std::string text = "store: " + std::to_string(store.used()) + " of " +
                     std::to_string(store.limit()) + " descriptors; ledger " +
                     FormatSize(store.ledger_bytes());
  if (store.sessions_awaited() > 0) {
    text += "; " + std::to_string(store.sessions_awaited()) +
            " sessions of before the restart have not come back yet";
  }
  return text + "\n";
}

}  // namespace

int RunGenerations(const GlobalOptions& options) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto response = client->ListGenerations();
  if (!response.ok()) return Fail(options, response.status());
  if (options.json) return PrintJson(options, *response);
  Table table(
      {"DEVICE", ">GENERATION", "NEWEST", ">SESSIONS", ">DOMAINS", ">REGIONS", ">ENDPOINTS"});
  for (const mrd::v1::Generation& each : response->generations()) {
    table.Add({each.device(), std::to_string(each.generation()), each.newest() ? "yes" : "no",
               std::to_string(each.sessions()), std::to_string(each.domains()),
               std::to_string(each.regions()), std::to_string(each.endpoints())});
  }
  return Print(options, table.Text() + StoreText(*response));
}

int RunLeaveGeneration(const GlobalOptions& options, const LeaveCommand& command) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto asked = client->LeaveGeneration(command.device, command.generation, command.reason);
  if (!asked.ok()) return Fail(options, asked.status());
  if (options.json) {
    mrd::v1::LeaveGenerationResponse response;
    response.set_sessions(*asked);
    return PrintJson(options, response);
  }
  return Print(options, std::to_string(*asked) +
                            (*asked == 1 ? " session was asked" : " sessions were asked") +
                            " to leave it: mrctl generations shows what is left there\n");
}

}  // namespace mrctl
