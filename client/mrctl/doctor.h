// mrctl doctor: what stands in the way of registering memory, and what to do about it. Every check
// is a function of what it looks at, so that tests can give it what no test machine has.
#ifndef MRD_CLIENT_MRCTL_DOCTOR_H_
#define MRD_CLIENT_MRCTL_DOCTOR_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/mrctl/command.h"
#include "mrd/v1/device.pb.h"
#include "mrd/v1/mrctl.pb.h"
#include "mrd/v1/policy.pb.h"
#include "mrd/v1/session.pb.h"

namespace mrctl {

using Findings = std::vector<mrd::v1::Finding>;

mrd::v1::Finding Good(std::string check, std::string text);
mrd::v1::Finding Told(std::string check, std::string text);  // State NOTE.
mrd::v1::Finding Warning(std::string check, std::string text, std::string remedy);
mrd::v1::Finding Problem(std::string check, std::string text, std::string remedy);

// The kernel's facilities, asked of the kernel itself: SO_PEERPIDFD, pidfd_open, MADV_POPULATE.
struct KernelFacts {
  bool peer_pidfd = false;
  bool pidfd = false;
  bool populate = false;
  std::optional<uint64_t> max_map_count = {};
  bool rdma_subsystem = false;  // /sys/class/infiniband
  bool uverbs = false;          // /dev/infiniband/uverbs*
  bool rdma_cm = false;         // /dev/infiniband/rdma_cm
};
KernelFacts ReadKernel();
// Without devices of the kernel, since the daemon has none or is on fabric soft, what concerns them
// is a note.
Findings CheckKernel(const KernelFacts& facts, bool verbs);

// The daemon's process; nothing is set where /proc does not show it.
struct ProcessFacts {
  pid_t pid = 0;                         // 0: hidden by a pid namespace.
  std::optional<uint64_t> memlock = {};  // Bytes; UINT64_MAX: without limit.
  std::optional<uint64_t> files = {};
  std::optional<uint64_t> capabilities = {};  // CapEff
};
// `proc`: "/proc", but for tests.
ProcessFacts ReadProcess(const std::string& proc, pid_t pid);
Findings CheckProcess(const ProcessFacts& facts, bool verbs);

// The directory of the sockets, and whether this user may use them.
Findings CheckSockets(const std::string& dir);
// Of the daemon's end of DIR/attach.sock; 0: hidden, or it cannot be connected to.
pid_t DaemonPid(const std::string& dir);

Findings CheckDevices(const std::string& fabric, const std::vector<mrd::v1::Device>& devices);

// Whether the rule that applies here lets it use one of them.
Findings CheckAllowed(const mrd::v1::AppliedPolicy& policy,
                      const std::vector<mrd::v1::Device>& devices);

// The service manager's store: what of this user's (of everybody's, for an admin) a restart of the
// daemon would end, and what is still held of before one.
Findings CheckSurvival(const mrd::v1::GetStatusResponse& status);

// What a person reads: a line a finding, its remedy below it, and a last line that sums up.
std::string DoctorText(const Findings& findings);

// Returns kRefused where there is a problem.
int RunDoctor(const GlobalOptions& options);

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_DOCTOR_H_
