// The fabric on libibverbs and librdmacm.
#ifndef MRD_DAEMON_FABRIC_VERBS_VERBS_FABRIC_H_
#define MRD_DAEMON_FABRIC_VERBS_VERBS_FABRIC_H_

#include <memory>

#include "absl/status/statusor.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/api.h"

namespace mrd::fabric {

// Opens all RDMA devices of the host. Errors: DEVICE_UNKNOWN where there is none, DEVICE_ERROR
// where none can be opened. `api` outlives the fabric; everything that the fabric made must be gone
// before it is.
absl::StatusOr<std::unique_ptr<Fabric>> MakeVerbsFabric(verbs::Api& api);

}  // namespace mrd::fabric

#endif  // MRD_DAEMON_FABRIC_VERBS_VERBS_FABRIC_H_
