// mrctl drain and mrctl reload.
#include <ctime>

#include "client/mrctl/admin.h"
#include "client/mrctl/units.h"
#include "daemon/broker/policy/text.h"

namespace mrctl {

std::string DrainText(const mrd::v1::Drain& drain, int64_t now) {
  std::string text = "DRAINED for " + FormatAge(now - drain.since().seconds());
  const uint64_t left = drain.sessions_left();
  text += ": nothing new is let in; " + std::to_string(left) +
          (left == 1 ? " session left" : " sessions left");
  if (drain.has_remaining()) {
    text += drain.remaining().seconds() > 0 ? ", ended in " + FormatAge(drain.remaining().seconds())
                                            : ", the deadline is over";
  }
  // Another admin's words; last, so that a narrow terminal cuts nothing else.
  if (!drain.reason().empty()) text += " (" + mrd::policy::Printable(drain.reason()) + ")";
  return text;
}

int RunDrain(const GlobalOptions& options, const DrainCommand& command) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  if (command.undo) {
    absl::Status undone = client->UndrainDaemon();
    if (!undone.ok()) return Fail(options, undone);
    if (options.json) return PrintJson(options, mrd::v1::UndrainDaemonResponse());
    return Print(options, "not drained: sessions and registrations are let in\n");
  }
  auto drain = client->DrainDaemon(command.reason, command.deadline);
  if (!drain.ok()) return Fail(options, drain.status());
  if (options.json) {
    mrd::v1::DrainDaemonResponse response;
    *response.mutable_drain() = *drain;
    return PrintJson(options, response);
  }
  return Print(options,
               DrainText(*drain, time(nullptr)) +
                   "\nmrctl status --admin shows how many are left; mrctl drain --undo takes "
                   "it back\n");
}

int RunReload(const GlobalOptions& options) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto rules = client->ReloadPolicy();
  if (!rules.ok()) return Fail(options, rules.status());
  if (options.json) {
    mrd::v1::ReloadPolicyResponse response;
    response.set_rules(*rules);
    return PrintJson(options, response);
  }
  return Print(options, "policy in force: " + std::to_string(*rules) +
                            (*rules == 1 ? " rule\n" : " rules\n"));
}

}  // namespace mrctl
