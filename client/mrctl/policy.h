// mrctl policy: what a policy file says, without a daemon.
#ifndef MRD_CLIENT_MRCTL_POLICY_H_
#define MRD_CLIENT_MRCTL_POLICY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/mrctl/command.h"

namespace mrctl {

struct ExplainCommand {
  std::string config;  // Empty: the daemon's default file, which may be missing.
  uint64_t uid = 0;
  std::vector<uint64_t> gids;  // The primary and the supplementary groups.
  std::string cgroup;
};

// They return the exit code: kRefused where the file is not good.
int RunPolicyCheck(const GlobalOptions& options, const std::string& file);
int RunPolicyExplain(const GlobalOptions& options, const ExplainCommand& command);

// What applies to a client, for people; for `mrctl status` too.
std::string PolicyText(const mrd::v1::AppliedPolicy& applied, bool limits);

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_POLICY_H_
