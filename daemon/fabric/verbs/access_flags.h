// Access masks as libibverbs and the kernel have them.
#ifndef MRD_DAEMON_FABRIC_VERBS_ACCESS_FLAGS_H_
#define MRD_DAEMON_FABRIC_VERBS_ACCESS_FLAGS_H_

#include <infiniband/verbs.h>

#include "daemon/fabric/access.h"

namespace mrd::fabric::verbs {

// IBV_ACCESS_* of ibv_reg_mr(3); the kernel's IB_UVERBS_ACCESS_* have the same values.
inline int ToVerbs(AccessMask access) {
  int flags = 0;
  if (access & Bit(v1::LOCAL_WRITE)) flags |= IBV_ACCESS_LOCAL_WRITE;
  if (access & Bit(v1::REMOTE_WRITE)) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (access & Bit(v1::REMOTE_READ)) flags |= IBV_ACCESS_REMOTE_READ;
  if (access & Bit(v1::REMOTE_ATOMIC)) flags |= IBV_ACCESS_REMOTE_ATOMIC;
  if (access & Bit(v1::RELAXED_ORDERING)) flags |= IBV_ACCESS_RELAXED_ORDERING;
  if (access & Bit(v1::ON_DEMAND)) flags |= IBV_ACCESS_ON_DEMAND;
  if (access & Bit(v1::HUGETLB)) flags |= IBV_ACCESS_HUGETLB;
  return flags;
}

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_ACCESS_FLAGS_H_
