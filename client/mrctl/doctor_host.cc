// What doctor finds out about the kernel and the daemon's process.
#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "client/mrctl/doctor.h"
#include "client/mrctl/units.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // include/uapi/asm-generic/socket.h, Linux 6.5
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // include/uapi/asm-generic/mman-common.h, Linux 5.14
#endif

namespace mrctl {
namespace {

constexpr uint64_t kMapCount = 65530;  // The kernel's own default.
constexpr uint64_t kFiles = 131072;    // With less the limits of README shrink.
constexpr uint64_t kNoLimit = UINT64_MAX;

bool HasPeerPidfd() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return false;
  int pidfd = -1;
  socklen_t length = sizeof pidfd;
  const bool has = getsockopt(pair[0], SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0;
  if (has) close(pidfd);
  close(pair[0]);
  close(pair[1]);
  return has;
}

bool HasPidfd() {
  const long pidfd = syscall(SYS_pidfd_open, getpid(), 0);
  if (pidfd < 0) return false;
  close(static_cast<int>(pidfd));
  return true;
}

bool HasPopulate() {
  const auto size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  const bool has = madvise(page, size, MADV_POPULATE_WRITE) == 0;
  munmap(page, size);
  return has;
}

bool HasUverbs() {
  DIR* const dir = opendir("/dev/infiniband");
  if (!dir) return false;
  bool found = false;
  while (const dirent* entry = readdir(dir)) {
    found |= std::string(entry->d_name).rfind("uverbs", 0) == 0;
  }
  closedir(dir);
  return found;
}

// "unlimited" or bytes, of /proc/PID/limits: the soft one stands first.
std::optional<uint64_t> LimitOf(const std::string& line) {
  std::istringstream values(line);
  std::string soft;
  if (!(values >> soft)) return std::nullopt;
  if (soft == "unlimited") return kNoLimit;
  auto value = ParseNumber(soft, 0, kNoLimit);
  return value.ok() ? std::optional(*value) : std::nullopt;
}

std::string LimitText(uint64_t limit) {
  return limit == kNoLimit ? "without limit" : FormatSize(limit);
}

}  // namespace

KernelFacts ReadKernel() {
  KernelFacts facts;
  facts.peer_pidfd = HasPeerPidfd();
  facts.pidfd = HasPidfd();
  facts.populate = HasPopulate();
  uint64_t count = 0;
  if (std::ifstream("/proc/sys/vm/max_map_count") >> count) facts.max_map_count = count;
  facts.rdma_subsystem = access("/sys/class/infiniband", F_OK) == 0;
  facts.uverbs = HasUverbs();
  facts.rdma_cm = access("/dev/infiniband/rdma_cm", F_OK) == 0;
  return facts;
}

Findings CheckKernel(const KernelFacts& facts, bool verbs) {
  Findings findings;
  if (facts.peer_pidfd) {
    findings.push_back(Good("peer pidfd", "SO_PEERPIDFD: who connects is known at once"));
  } else if (facts.pidfd) {
    findings.push_back(Told("peer pidfd",
                            "no SO_PEERPIDFD (before Linux 6.5): clients answer a challenge; those "
                            "of another pid namespace are known by their hang-up only"));
  } else {
    findings.push_back(Problem("peer pidfd",
                               "no pidfd_open(2): the kernel is older than 5.3, or "
                               "a seccomp filter refuses it",
                               "Use a newer kernel, or let the filter pass pidfd_open."));
  }
  if (facts.populate) {
    findings.push_back(Good("populate", "MADV_POPULATE_WRITE: buffers are populated at once"));
  } else {
    findings.push_back(Problem("populate",
                               "no MADV_POPULATE_WRITE (before Linux 5.14): the client "
                               "library cannot make buffers",
                               "Use a newer kernel."));
  }
  if (facts.max_map_count && *facts.max_map_count < kMapCount) {
    findings.push_back(Warning("mappings",
                               "vm.max_map_count is " + std::to_string(*facts.max_map_count),
                               "sysctl -w vm.max_map_count=" + std::to_string(kMapCount) +
                                   ": the daemon maps each buffer that it registers."));
  } else if (facts.max_map_count) {
    findings.push_back(
        Good("mappings", "vm.max_map_count is " + std::to_string(*facts.max_map_count)));
  }
  const std::string in_container =
      " In a container these do not show, and clients need none of them.";
  if (facts.uverbs && facts.rdma_cm) {
    findings.push_back(Good("modules", "ib_uverbs and rdma_ucm are there"));
    return findings;
  }
  std::string missing = !facts.rdma_subsystem ? "no RDMA in this kernel (/sys/class/infiniband)"
                        : !facts.uverbs       ? "no /dev/infiniband/uverbs*"
                                              : "no /dev/infiniband/rdma_cm";
  if (verbs) {
    findings.push_back(
        Warning("modules", missing,
                "modprobe ib_uverbs rdma_ucm, and the driver of the device." + in_container));
  } else {
    findings.push_back(Told("modules", missing + "; fabric soft needs none"));
  }
  return findings;
}

ProcessFacts ReadProcess(const std::string& proc, pid_t pid) {
  ProcessFacts facts{.pid = pid};
  if (pid <= 0) return facts;
  const std::string base = proc + "/" + std::to_string(pid);
  std::string line;
  std::ifstream limits(base + "/limits");
  while (std::getline(limits, line)) {
    const auto value = [&](const std::string& name) -> std::optional<uint64_t> {
      if (line.rfind(name, 0) != 0) return std::nullopt;
      return LimitOf(line.substr(name.size()));
    };
    if (auto bytes = value("Max locked memory")) facts.memlock = bytes;
    if (auto count = value("Max open files")) facts.files = count;
  }
  std::ifstream status(base + "/status");
  while (std::getline(status, line)) {
    if (line.rfind("CapEff:", 0) == 0) {
      facts.capabilities = strtoull(line.c_str() + 7, nullptr, 16);
    }
  }
  return facts;
}

Findings CheckProcess(const ProcessFacts& facts, bool verbs) {
  Findings findings;
  if (facts.pid == 0) {
    return {Told("memlock",
                 "the daemon's process is in another pid namespace: its limits do not "
                 "show from here")};
  }
  if (!facts.memlock && !facts.files && !facts.capabilities) {
    return {Told("memlock", "/proc does not show the daemon's limits to this user (pid " +
                                std::to_string(facts.pid) + ")")};
  }
  const bool may_lock =
      facts.capabilities && (*facts.capabilities & (uint64_t{1} << CAP_IPC_LOCK)) != 0;
  if (may_lock) {
    findings.push_back(Good("memlock", "the daemon has CAP_IPC_LOCK: no limit applies"));
  } else if (facts.memlock && *facts.memlock == kNoLimit) {
    findings.push_back(Good("memlock", "the daemon may lock without limit"));
  } else if (facts.memlock) {
    const std::string text = "the daemon may lock " + LimitText(*facts.memlock) +
                             " and has no CAP_IPC_LOCK: larger registrations are refused (MEMLOCK)";
    const std::string remedy =
        "Give it CAP_IPC_LOCK (systemd: AmbientCapabilities=CAP_IPC_LOCK; docker: --cap-add "
        "IPC_LOCK), or LimitMEMLOCK=infinity.";
    findings.push_back(verbs ? Warning("memlock", text, remedy)
                             : Told("memlock", "fabric soft locks no memory"));
  }
  if (facts.files && *facts.files < kFiles) {
    findings.push_back(Warning(
        "descriptors",
        "the daemon may open " + std::to_string(*facts.files) +
            " files: sessions, buffers and endpoints have lower limits than the policy says",
        "LimitNOFILE=" + std::to_string(kFiles) + " or more (docker: --ulimit nofile)."));
  } else if (facts.files) {
    findings.push_back(
        Good("descriptors", "the daemon may open " + std::to_string(*facts.files) + " files"));
  }
  return findings;
}

}  // namespace mrctl
