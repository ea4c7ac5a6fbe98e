// The fabric of a machine without RDMA: one device "soft0" in this process. A registration is
// checked (bounds, access, address) and gets keys as on a device; endpoints connect to other
// endpoints of this daemon, over loopback addresses. No data moves over them yet: nobody uses the
// keys.
#ifndef MRD_DAEMON_FABRIC_SOFT_SOFT_FABRIC_H_
#define MRD_DAEMON_FABRIC_SOFT_SOFT_FABRIC_H_

#include <memory>

#include "daemon/fabric/fabric.h"

namespace mrd::fabric {

// Everything that the fabric made must be gone before it is.
std::unique_ptr<Fabric> MakeSoftFabric();

}  // namespace mrd::fabric

#endif  // MRD_DAEMON_FABRIC_SOFT_SOFT_FABRIC_H_
