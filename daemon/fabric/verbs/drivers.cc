#include "daemon/fabric/verbs/drivers.h"

namespace mrd::fabric::verbs {
namespace {

constexpr uint32_t kAnyVendor = 0;

struct Driver {
  ibv_node_type node_type;
  uint32_t vendor_id;  // As ibv_query_device(3) gives it.
  DriverFacts facts;
};

constexpr Driver kDrivers[] = {
    // siw, soft-iWARP (SIW_VENDOR_ID of the kernel's drivers/infiniband/sw/siw/siw.h).
    // siw_reg_user_mr does not use its
    // argument rnic_va. Seen on 6.1: a peer's write reports success and is lost; ENOMEM with
    // CAP_IPC_LOCK.
    {IBV_NODE_RNIC, 0x626d74, {.ignores_iova = true, .enforces_memlock = true}},
    // usnic: usnic_ib_reg_mr does not use its argument virt_addr.
    {IBV_NODE_USNIC, kAnyVendor, {.ignores_iova = true}},
    {IBV_NODE_USNIC_UDP, kAnyVendor, {.ignores_iova = true}},
};

}  // namespace

DriverFacts FactsOf(ibv_node_type node_type, uint32_t vendor_id) {
  for (const Driver& driver : kDrivers) {
    if (driver.node_type == node_type &&
        (driver.vendor_id == kAnyVendor || driver.vendor_id == vendor_id)) {
      return driver.facts;
    }
  }
  return {};
}

}  // namespace mrd::fabric::verbs
