// One MAP_SHARED mapping of a buffer in the daemon. The daemon never reads or writes through it: it
// is there for the kernel to find the pages to pin.
#ifndef MRD_DAEMON_MEMORY_MAPPING_H_
#define MRD_DAEMON_MEMORY_MAPPING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/mutex.h"

namespace mrd::memory {

// Thread-safe. Unmapped when the last shared_ptr goes.
class Mapping {
 public:
  // Maps [offset, offset + length) of `fd`, which is page-aligned; anywhere, or exactly at
  // `address` where it is not 0 (MAP_FIXED_NOREPLACE: EEXIST where something lies there). Kept out
  // of core dumps. Returns null and sets errno on failure.
  static std::shared_ptr<Mapping> Make(int fd, uint64_t offset, uint64_t length, uint64_t address);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  uint64_t offset() const { return offset_; }
  uint64_t length() const { return length_; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(base_); }
  bool Covers(uint64_t offset, uint64_t length) const {
    return offset >= offset_ && length <= length_ && offset - offset_ <= length_ - length;
  }
  // Where this byte of the buffer is. REQUIRES: Covers(offset, 1).
  void* At(uint64_t offset) const { return base_ + (offset - offset_); }

  // Brings the pages of a range into the page table, once: registering through untouched entries
  // costs several times more (each page faults by itself). Does nothing for small ranges, which the
  // pin faults in as quickly.
  void Populate(uint64_t offset, uint64_t length);

 private:
  Mapping(char* base, uint64_t offset, uint64_t length);

  char* const base_;
  const uint64_t offset_;
  const uint64_t length_;
  Mutex mutex_;
  std::vector<bool> populated_
      MRD_GUARDED_BY(mutex_);  // By chunk of 2 MiB; made with the first large range.
};

}  // namespace mrd::memory

#endif  // MRD_DAEMON_MEMORY_MAPPING_H_
