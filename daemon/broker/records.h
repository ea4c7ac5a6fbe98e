// What the ledger is told of sessions and of what they hold.
#ifndef MRD_DAEMON_BROKER_RECORDS_H_
#define MRD_DAEMON_BROKER_RECORDS_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "daemon/broker/ledger/ledger.h"
#include "daemon/broker/named_domain.h"
#include "daemon/broker/session.h"

namespace mrd::broker {

struct Endpoint;

ledger::pb::Session RecordOf(const Session& session);
ledger::pb::Membership RecordOf(const Session& session, const NamedDomain& domain);
// Of a connection or a listener; `named` may be null. Without the name of a stored descriptor.
ledger::pb::Endpoint RecordOf(const Session& session, const Endpoint& endpoint,
                              const NamedDomain* named);

// The leases of one Register call: each gets its record, and all of them count or none. `request`
// and `named` may be null. `call_id` is used where there are several. On an error, that of
// Ledger::Put, none counts.
absl::Status WriteDown(ledger::Ledger& ledger, const Session& session,
                       std::vector<std::unique_ptr<Lease>>& leases, const RequestRecord* request,
                       const NamedDomain* named, uint64_t call_id);

// A lease that has a record has other regions now. On an error it has none any more, and does not
// survive.
absl::Status Rewrite(ledger::Ledger& ledger, Lease& lease);

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_RECORDS_H_
