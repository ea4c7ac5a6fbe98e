// Access flags of a region as a bit set, and the rules that hold on every device.
#ifndef MRD_DAEMON_FABRIC_ACCESS_H_
#define MRD_DAEMON_FABRIC_ACCESS_H_

#include <cstdint>

#include "mrd/v1/device.pb.h"

namespace mrd::fabric {

// Bits are 1 << v1::AccessFlag.
using AccessMask = uint32_t;

constexpr AccessMask Bit(v1::AccessFlag flag) { return AccessMask{1} << flag; }

inline constexpr AccessMask kRemoteAccess =
    Bit(v1::REMOTE_WRITE) | Bit(v1::REMOTE_READ) | Bit(v1::REMOTE_ATOMIC);

// A remote peer's write or atomic is a local write too: ibv_reg_mr(3) wants LOCAL_WRITE with them.
constexpr bool LacksLocalWrite(AccessMask access) {
  return (access & (Bit(v1::REMOTE_WRITE) | Bit(v1::REMOTE_ATOMIC))) != 0 &&
         (access & Bit(v1::LOCAL_WRITE)) == 0;
}

}  // namespace mrd::fabric

#endif  // MRD_DAEMON_FABRIC_ACCESS_H_
