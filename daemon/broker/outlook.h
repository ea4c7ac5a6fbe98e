// What would become of sessions if the daemon were restarted now.
#ifndef MRD_DAEMON_BROKER_OUTLOOK_H_
#define MRD_DAEMON_BROKER_OUTLOOK_H_

#include <cstdint>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/broker/generations.h"

namespace mrd::broker {

struct Outlook {
  struct Fate {
    uint64_t go_on = 0;
    uint64_t end = 0;
  };
  Fate sessions, regions, endpoints;
  // All but the newest of their devices, in which some of it lies.
  std::vector<GenerationView> old_generations;
};

// Of these sessions. Looks at each of them. May block.
Outlook LookAhead(Broker& broker, const std::vector<SessionRef>& sessions);

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_OUTLOOK_H_
