#include "daemon/broker/limits.h"

#include <unistd.h>

namespace mrd::broker {

Limits WithDefaults(Limits limits) {
  if (limits.pinned_bytes == 0) {
    limits.pinned_bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 2;
  }
  return limits;
}

}  // namespace mrd::broker
