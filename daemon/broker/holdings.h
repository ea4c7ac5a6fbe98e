// What sessions hold now, added up by who, where and in which kind of domain: for metrics.
#ifndef MRD_DAEMON_BROKER_HOLDINGS_H_
#define MRD_DAEMON_BROKER_HOLDINGS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "daemon/broker/broker.h"

namespace mrd::broker {

struct HoldingKey {
  uint32_t uid;
  std::string device;
  std::string
      domain;  // "private" or "named". Never a name that a client chose: they have no bound.

  bool operator<(const HoldingKey& other) const {
    return std::tie(uid, device, domain) < std::tie(other.uid, other.device, other.domain);
  }
};

struct Holding {
  uint64_t regions = 0;
  uint64_t bytes = 0;  // Pinned, as booked.
};

// Looks at every lease, some thousands of one session at a time, so that its calls go on in
// between. Those that are being made or ended meanwhile are seen or not. Takes as long as there are
// many leases: not for a thread that others wait for.
std::map<HoldingKey, Holding> Holdings(Broker& broker);

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_HOLDINGS_H_
