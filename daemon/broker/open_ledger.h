// The ledger that an earlier run of the daemon has left in the store, or a new one.
#ifndef MRD_DAEMON_BROKER_OPEN_LEDGER_H_
#define MRD_DAEMON_BROKER_OPEN_LEDGER_H_

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/broker/ledger/slots.h"
#include "daemon/broker/ledger/store.h"
#include "daemon/unique_fd.h"

namespace mrd::broker {

// Descriptors of the store, as the service manager gave them.
using StoredFds = std::multimap<std::string, UniqueFd>;

// The ledger that is among `fds`, which is taken out, or a new one in the store. Where it cannot be
// believed (there are two, it is damaged, not for this version, or three adoptions in a row by this
// version have crashed), all of `fds` are closed and taken out of the store, which ends in the
// kernel what they kept alive; the log says so. Errors: there can be no ledger at all.
absl::StatusOr<std::unique_ptr<ledger::Slots>> OpenLedger(StoredFds& fds, ledger::Store& store);

// Closes all of them, and takes them out of the store.
void CloseAll(StoredFds& fds, ledger::Store& store);

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_OPEN_LEDGER_H_
