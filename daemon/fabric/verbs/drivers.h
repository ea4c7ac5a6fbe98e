// What is known of single kernel drivers and no query tells.
#ifndef MRD_DAEMON_FABRIC_VERBS_DRIVERS_H_
#define MRD_DAEMON_FABRIC_VERBS_DRIVERS_H_

#include <infiniband/verbs.h>

#include <cstdint>

namespace mrd::fabric::verbs {

struct DriverFacts {
  // Registers at the virtual address, whatever iova says, and reports success: a peer's write to
  // the iova is then lost. Verbs has no way to ask, and the ibv_mr that comes back repeats what was
  // asked for; so a driver that is not known to ignore it is taken to honour it, as
  // ibv_reg_mr_iova(3) demands.
  bool ignores_iova = false;
  // Enforces RLIMIT_MEMLOCK on holders of CAP_IPC_LOCK too, and gives it as max_mr_size.
  bool enforces_memlock = false;
};

DriverFacts FactsOf(ibv_node_type node_type, uint32_t vendor_id);

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_DRIVERS_H_
