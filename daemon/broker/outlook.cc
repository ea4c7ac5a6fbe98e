#include "daemon/broker/outlook.h"

#include <set>
#include <string>
#include <utility>

#include "daemon/broker/endpoints.h"

namespace mrd::broker {

Outlook LookAhead(Broker& broker, const std::vector<SessionRef>& sessions) {
  Outlook outlook;
  std::set<std::pair<std::string, uint64_t>> kept;
  if (ledger::Ledger* const ledger = broker.ledger()) kept = ledger->KeptDevices();
  const auto count = [](bool goes_on, uint64_t number, Outlook::Fate* fate) {
    (goes_on ? fate->go_on : fate->end) += number;
  };
  for (const SessionRef& session : sessions) {
    MutexLock lock(session->mutex);
    if (session->ending) continue;
    const bool goes_on = static_cast<bool>(session->record);
    count(goes_on, 1, &outlook.sessions);
    for (const auto& [id, lease] : session->leases) {
      for (const HeldRegion& held : lease->regions) {
        const bool there = kept.contains({held.domain->device(), held.domain->generation()});
        count(goes_on && lease->written && there, 1, &outlook.regions);
      }
    }
    for (const auto& [id, endpoint] : session->endpoints) {
      count(goes_on && endpoint->record, 1, &outlook.endpoints);
    }
  }
  for (GenerationView& view : Generations(broker, sessions)) {
    if (!view.newest) outlook.old_generations.push_back(std::move(view));
  }
  return outlook;
}

}  // namespace mrd::broker
