#include "client/huge_pages.h"

#include <errno.h>
#include <stdio.h>

#include <utility>

#include "client/local_error.h"
#include "client/shared_memory.h"

namespace mrd::internal {
namespace {

uint64_t PoolValue(const char* name) {
  const std::string path = std::string("/sys/kernel/mm/hugepages/hugepages-2048kB/") + name;
  unsigned long long value = 0;
  if (FILE* file = fopen(path.c_str(), "re")) {
    if (fscanf(file, "%llu", &value) != 1) value = 0;
    fclose(file);
  }
  return value;
}

}  // namespace

absl::Status HugePageError(std::string what, uint64_t bytes, int errno_value) {
  const uint64_t needed = bytes / kHugePage;
  const uint64_t free = PoolValue("free_hugepages");
  const uint64_t reserved = PoolValue("resv_hugepages");
  const uint64_t usable = free > reserved ? free - reserved : 0;
  std::string advice =
      "2 MiB pages: " + std::to_string(needed) + " needed, " + std::to_string(usable) + " free. ";
  if (usable < needed) {
    const uint64_t total = PoolValue("nr_hugepages") + needed - usable;
    advice += "Make more with: sysctl vm.nr_hugepages=" + std::to_string(total) +
              "; or ask for other pages.";
  } else {
    // The pool has them: a cgroup's hugetlb limit, or another NUMA policy, stands between.
    advice += "The hugetlb limit of this process's cgroup may be lower.";
  }
  return LocalError(absl::StatusCode::kResourceExhausted, std::move(what), errno_value, advice);
}

}  // namespace mrd::internal
