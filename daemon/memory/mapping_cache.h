// The daemon's mappings of buffers: at most so many and so much address space, the least recently
// used one goes first. Registering through a mapping that is there costs a fraction of what a fresh
// one does.
#ifndef MRD_DAEMON_MEMORY_MAPPING_CACHE_H_
#define MRD_DAEMON_MEMORY_MAPPING_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>

#include "absl/status/statusor.h"
#include "daemon/memory/mapping.h"
#include "daemon/mutex.h"

namespace mrd::memory {

struct MappingLimits {
  // vm.max_map_count is 65,530, and each mapping is one (two where huge pages split it).
  size_t count = 16384;
  // Of 128 TiB that a process has.
  uint64_t bytes = uint64_t{32} << 40;
  // A buffer up to this size is mapped whole; of a larger one (sparse: no populated buffer exceeds
  // the machine's memory) only the range asked for.
  uint64_t whole = uint64_t{1} << 40;
};

// A buffer, for those who map it.
struct Mappable {
  const void* key;  // Its identity.
  int fd;
  uint64_t size;       // Bytes.
  uint64_t page_size;  // Bytes.
};

// What of a buffer to map for a range of it.
struct Extent {
  uint64_t offset;
  uint64_t length;
};
Extent ExtentToMap(const Mappable& buffer, uint64_t offset, uint64_t length, uint64_t whole);

// Thread-safe.
class MappingCache {
 public:
  explicit MappingCache(MappingLimits limits) : limits_(limits) {}

  // A mapping that covers the range; it stays as long as the pointer is held, evicted or not.
  // Errors: DEVICE_ERROR with the errno of mmap(2), NOT_SHARED_MEMORY where the file cannot be
  // mapped.
  absl::StatusOr<std::shared_ptr<Mapping>> Get(const Mappable& buffer, uint64_t offset,
                                               uint64_t length);

  // Whether Get would find it mapped.
  bool Has(const void* key, uint64_t offset, uint64_t length);

  // The buffer goes away.
  void Forget(const void* key);

  size_t count();

 private:
  struct Entry {
    const void* key;
    std::shared_ptr<Mapping> mapping;
  };
  using Lru = std::list<Entry>;

  // Moves what must go into `out`, to be unmapped by the caller with no lock held: that may take
  // long.
  void TakeLocked(Lru::iterator entry, Lru& out) MRD_REQUIRES(mutex_);

  const MappingLimits limits_;
  Mutex mutex_;
  Lru lru_ MRD_GUARDED_BY(mutex_);  // Most recently used first.
  std::unordered_map<const void*, Lru::iterator> by_key_ MRD_GUARDED_BY(mutex_);
  uint64_t bytes_ MRD_GUARDED_BY(mutex_) = 0;
};

// The error for a mapping that failed with this errno.
absl::Status MappingError(int errno_value, uint64_t length);

}  // namespace mrd::memory

#endif  // MRD_DAEMON_MEMORY_MAPPING_CACHE_H_
