// Sockets that the service manager's socket units have made, and pass to the daemon.
#ifndef MRD_DAEMON_HOST_ACTIVATION_H_
#define MRD_DAEMON_HOST_ACTIVATION_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/broker/ledger/store.h"
#include "daemon/host/inherited.h"
#include "daemon/ipc/socket_dir.h"

namespace mrd::host {

// FileDescriptorName= of the three units. The store's names are others.
inline constexpr char kRpcSocket[] = "rpc";
inline constexpr char kAttachSocket[] = "attach";
inline constexpr char kAdminSocket[] = "admin";

// Takes them out of `inherited`, which keeps the others. Nothing where none of these names is
// there: then mrd makes sockets of its own. Errors, which name the unit at fault: some are there
// and others not; one is there twice, or is no listening Unix socket of its type at a path;
// PERMISSION_DENIED: others could put a socket of theirs in its place, or reach that of admins.
//
// From now on who connects is told that the peer is this process (SO_PEERCRED): the kernel says who
// called listen(2) last.
absl::StatusOr<std::optional<ipc::SocketDir>> TakeSockets(std::vector<InheritedFd>& inherited);

// What nobody has asked for: says so, closes it, and takes it out of the store, where a duplicate
// of it would keep alive in the kernel what an earlier run had.
void CloseUnknown(std::vector<InheritedFd> inherited, broker::ledger::Store& store);

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_ACTIVATION_H_
