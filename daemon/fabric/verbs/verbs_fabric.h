// The fabric on libibverbs and librdmacm.
#ifndef MRD_DAEMON_FABRIC_VERBS_VERBS_FABRIC_H_
#define MRD_DAEMON_FABRIC_VERBS_VERBS_FABRIC_H_

#include <memory>

#include "absl/status/statusor.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/api.h"

namespace mrd::fabric {

// Of a host where no device can be opened: an error; or one may come, and the fabric begins
// without.
enum class NoDevice { kIsAnError, kIsAWait };

// Opens all RDMA devices of the host. Errors: DEVICE_UNKNOWN where there is none, DEVICE_ERROR
// where none can be opened; where that is a wait, it is logged instead. `api` outlives the fabric;
// everything that the fabric made must be gone before it is.
absl::StatusOr<std::unique_ptr<Fabric>> MakeVerbsFabric(verbs::Api& api,
                                                        NoDevice none = NoDevice::kIsAnError);

}  // namespace mrd::fabric

#endif  // MRD_DAEMON_FABRIC_VERBS_VERBS_FABRIC_H_
