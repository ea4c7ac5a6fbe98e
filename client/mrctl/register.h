// mrctl register: buffers made, registered, and held for a while; for trying things out and for
// peers to read and write.
#ifndef MRD_CLIENT_MRCTL_REGISTER_H_
#define MRD_CLIENT_MRCTL_REGISTER_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/mrctl/command.h"
#include "client/mrctl/units.h"
#include "mrd/v1/registration.pb.h"

namespace mrctl {

struct RegisterCommand {
  uint64_t size = 0;
  mrd::v1::Access access;
  std::vector<std::string> devices;
  bool all_devices = false;
  mrd::Pages pages = mrd::Pages::kBase4K;
  uint32_t count = 1;
  std::optional<HostPort> listen;
  std::chrono::nanoseconds ttl{0};  // 0: as long as the session.
  std::string domain;               // Empty: a private one.
  uint32_t domain_mode = 0600;      // Where it is made.
  bool join = false;                // It is not made.
  std::optional<double> seconds;    // How long to hold; nothing: until a signal.
};

int RunRegister(const GlobalOptions& options, const RegisterCommand& command);

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_REGISTER_H_
