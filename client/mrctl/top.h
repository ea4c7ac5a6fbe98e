// mrctl top: a live view of the sessions, to be kept open.
#ifndef MRD_CLIENT_MRCTL_TOP_H_
#define MRD_CLIENT_MRCTL_TOP_H_

#include <chrono>

#include "client/mrctl/command.h"
#include "client/mrctl/top_model.h"

namespace mrctl {

struct TopCommand {
  std::chrono::nanoseconds interval = std::chrono::seconds(1);
  TopOrder order = TopOrder::kBytes;
  bool once = false;
};

// Returns the exit code. With --json, or with --once, it needs no terminal.
int RunTop(const GlobalOptions& options, const TopCommand& command);

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_TOP_H_
