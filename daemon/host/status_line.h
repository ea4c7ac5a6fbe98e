// What `systemctl status` says of the daemon.
#ifndef MRD_DAEMON_HOST_STATUS_LINE_H_
#define MRD_DAEMON_HOST_STATUS_LINE_H_

#include <string>

#include "daemon/broker/broker.h"

namespace mrd::host {

// "3 sessions, 40 regions, 1.5 GiB", of which the last two are as booked: of leases, and of what is
// being made or ended. Before it "ending" or "drained", where it is so. Thread-safe.
std::string StatusLine(broker::Broker& broker);

// "512 B", "1.5 GiB": rounded down to a tenth.
std::string BytesForPeople(uint64_t bytes);

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_STATUS_LINE_H_
