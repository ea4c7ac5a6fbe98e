// The Api that calls libibverbs, librdmacm and the kernel.
#ifndef MRD_DAEMON_FABRIC_VERBS_API_REAL_H_
#define MRD_DAEMON_FABRIC_VERBS_API_REAL_H_

#include <memory>

#include "daemon/fabric/verbs/api.h"

namespace mrd::fabric::verbs {

// REQUIRES: no other thread yet, since it sets an environment variable for libibverbs.
std::unique_ptr<Api> MakeRealApi();

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_API_REAL_H_
