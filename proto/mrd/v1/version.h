// The one place where the version of mrd stands.
#ifndef MRD_V1_VERSION_H_
#define MRD_V1_VERSION_H_

#include <cstdint>

namespace mrd {

// Of the daemon, the library and the programs, which are released together.
inline constexpr char kVersion[] = "0.1.0";

// Of the attach protocol (AttachHello.protocol_version). A daemon takes its own and the one before.
inline constexpr uint32_t kProtocolVersion = 1;

}  // namespace mrd

#endif  // MRD_V1_VERSION_H_
