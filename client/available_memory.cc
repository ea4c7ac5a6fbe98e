#include "client/available_memory.h"

#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace mrd::internal {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Of a cgroup v2; none without a limit ("max") or without that file.
MemoryLimit CgroupLimit(const std::string& directory) {
  const std::string most = ReadFile(directory + "/memory.max");
  if (most.empty() || most[0] < '0' || most[0] > '9') return {};
  const uint64_t limit = strtoull(most.c_str(), nullptr, 10);
  const uint64_t used = strtoull(ReadFile(directory + "/memory.current").c_str(), nullptr, 10);
  return {"bytes of memory of the cgroup " + directory, limit, std::min(limit, used)};
}

// "0::/path" of the unified hierarchy; in a container its own cgroup is the root.
std::string CgroupDirectory() {
  std::istringstream lines(ReadFile("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("0::", 0) == 0) return "/sys/fs/cgroup" + line.substr(3);
  }
  return "/sys/fs/cgroup";
}

}  // namespace

uint64_t MeminfoBytes(const std::string& meminfo, const std::string& name) {
  std::istringstream lines(meminfo);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + ":", 0) == 0) {
      return strtoull(line.c_str() + name.size() + 1, nullptr, 10) * 1024;
    }
  }
  return 0;
}

MemoryLimit TightestMemoryLimit() {
  const std::string meminfo = ReadFile("/proc/meminfo");
  const uint64_t total = MeminfoBytes(meminfo, "MemTotal") + MeminfoBytes(meminfo, "SwapTotal");
  const uint64_t left = MeminfoBytes(meminfo, "MemAvailable") + MeminfoBytes(meminfo, "SwapFree");
  MemoryLimit machine;
  if (left != 0) machine = {"bytes of the machine's memory", total, total - std::min(total, left)};
  MemoryLimit cgroup = CgroupLimit(CgroupDirectory());
  return cgroup.left() < machine.left() ? cgroup : machine;
}

}  // namespace mrd::internal
