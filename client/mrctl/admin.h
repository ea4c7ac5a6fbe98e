// The commands of mrctl that change something at the daemon.
#ifndef MRD_CLIENT_MRCTL_ADMIN_H_
#define MRD_CLIENT_MRCTL_ADMIN_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/mrctl/command.h"

namespace mrctl {

struct RevokeCommand {
  std::vector<uint64_t> ids;
  std::string reason;
};

struct DrainCommand {
  std::string reason;
  std::optional<std::chrono::nanoseconds> deadline;
  bool undo = false;
};

// They return the exit code.
int RunRevokeLeases(const GlobalOptions& options, const RevokeCommand& command);
// One session. Waits until it holds nothing any more, for ten seconds.
int RunRevokeSession(const GlobalOptions& options, const RevokeCommand& command);
// mrctl generations leave DEVICE GENERATION
struct LeaveCommand {
  std::string device;
  uint64_t generation = 0;
  std::string reason;
};
int RunGenerations(const GlobalOptions& options);
int RunLeaveGeneration(const GlobalOptions& options, const LeaveCommand& command);

int RunDrain(const GlobalOptions& options, const DrainCommand& command);
int RunReload(const GlobalOptions& options);

// Since when, why and until when: "drained for 3 min: \"new kernel\"; 4 sessions left, ...".
std::string DrainText(const mrd::v1::Drain& drain, int64_t now);

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_ADMIN_H_
