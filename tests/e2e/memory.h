// Shared memory as a client may have it, well made or not. No code of the client library's.
#ifndef MRD_TESTS_E2E_MEMORY_H_
#define MRD_TESTS_E2E_MEMORY_H_

#include <cstdint>

#include "daemon/unique_fd.h"

namespace mrd::e2e {

struct MemoryOptions {
  bool sealed = true;     // F_SEAL_SHRINK.
  bool populated = true;  // Every page exists.
  uint64_t at = 0;        // Where it is mapped; 0: anywhere.
  unsigned flags = 0;     // More flags of memfd_create(2).
};

// A memfd and its mapping.
class Memory {
 public:
  explicit Memory(uint64_t size, const MemoryOptions& options = {});
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&&) = delete;
  ~Memory();

  int fd() const { return fd_.get(); }
  uint64_t addr() const { return reinterpret_cast<uint64_t>(data_); }
  char* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  UniqueFd fd_;
  char* data_ = nullptr;
  uint64_t size_;
};

// Makes the file so long, every page of it present. fallocate(2) would not do: what nobody has
// written is a hole all the same (SEEK_HOLE).
void Fill(int fd, uint64_t size);

inline constexpr uint64_t kPage = 4096;

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_MEMORY_H_
