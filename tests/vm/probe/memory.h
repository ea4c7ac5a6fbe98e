// Descriptors of every kind that a client might pass, good and bad.
#ifndef TESTS_VM_PROBE_MEMORY_H_
#define TESTS_VM_PROBE_MEMORY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/unique_fd.h"

namespace probe {

struct MemfdOptions {
  uint64_t size = 0;
  bool hugetlb = false;
  bool sealed = true;      // F_SEAL_SHRINK
  bool populated = true;   // Every page is present.
  bool frozen = false;     // F_SEAL_FUTURE_WRITE, after it was mapped.
  bool read_only = false;  // Another descriptor of it, opened for reading.
  uint64_t address = 0;    // Where to map it; 0: anywhere that mrd takes.
};

// A memfd with a mapping of its own, which stays until the process ends.
struct Memfd {
  mrd::internal::UniqueFd fd;
  void* address = nullptr;
};
absl::StatusOr<Memfd> MakeMemfd(const MemfdOptions& options);

// Names of descriptors that are no memory: "pipe", "directory" and so on.
const std::vector<std::string>& BadKinds();
absl::StatusOr<mrd::internal::UniqueFd> MakeBadFd(const std::string& kind);

// Made from a sealed memfd by /dev/udmabuf.
absl::StatusOr<mrd::internal::UniqueFd> MakeDmaBuf(int memfd, uint64_t size);

}  // namespace probe

#endif  // TESTS_VM_PROBE_MEMORY_H_
