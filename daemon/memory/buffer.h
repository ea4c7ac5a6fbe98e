// A shared-memory object that a session passed by descriptor, and the checks that come before
// anything of it is pinned.
#ifndef MRD_DAEMON_MEMORY_BUFFER_H_
#define MRD_DAEMON_MEMORY_BUFFER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "daemon/memory/address_window.h"
#include "daemon/memory/inspect.h"
#include "daemon/memory/mapping_cache.h"
#include "daemon/unique_fd.h"

namespace mrd::memory {

// All the daemon's mappings. Outlives the buffers.
struct Mappings {
  explicit Mappings(MappingLimits limits = {}) : cache(limits), window(limits) {}
  MappingCache cache;
  AddressWindow window;
};

// Thread-safe. Shared by the session that passed it and the calls that use it.
class Buffer {
 public:
  // Bytes [begin, end) whose pages were seen to be there. For the ranges of one call: it looks
  // once.
  struct Seen {
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  // REQUIRES: `facts` is what Inspect told of `fd`.
  Buffer(UniqueFd fd, Facts facts, Mappings& mappings)
      : fd_(std::move(fd)),
        facts_(facts),
        size_(facts.size),
        seals_(facts.seals),
        mappings_(mappings) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Kind kind() const { return facts_.kind; }
  bool dma_buf() const { return facts_.kind == Kind::kDmaBuf; }
  uint32_t page_size() const { return facts_.page_size; }
  int fd() const { return fd_.get(); }

  // Whether [offset, offset + length), which the client has at `address`, may be pinned if its
  // pages are there. `unsealed`: a buffer that can shrink is good too. Errors: INVALID_LENGTH,
  // OUT_OF_RANGE, MISALIGNED, ADDRESS_UNUSABLE, NOT_SEALED, BUFFER_READ_ONLY.
  absl::Status Check(uint64_t offset, uint64_t length, uint64_t address, bool unsealed);

  // Whether its pages are there, which takes long for a large one: see PresentFrom, also for
  // `stop`. Pages in `seen` are not looked for; those found are put there, unless they lie apart
  // from those seen before: then they take their place. REQUIRES: Check was OK. Errors:
  // OUT_OF_RANGE, NOT_POPULATED, CANCELLED.
  absl::Status CheckPresent(uint64_t offset, uint64_t length, Seen* seen,
                            absl::FunctionRef<bool()> stop);

  // A mapping of the range wherever it fits. REQUIRES: both checks were OK; not a dma-buf.
  absl::StatusOr<std::shared_ptr<Mapping>> Map(uint64_t offset, uint64_t length);

  // A mapping of the range at the client's address. REQUIRES: as above.
  absl::StatusOr<AddressWindow::Use> MapAt(uint64_t address, uint64_t offset, uint64_t length,
                                           std::chrono::steady_clock::time_point deadline);

  // Drops its mappings; those in use go when that use ends.
  void Unmap();

  // Whether Map would find it mapped: registering it is quick then.
  bool IsMapped(uint64_t offset, uint64_t length) const;
  // The same of MapAt.
  bool IsMappedAt(uint64_t address, uint64_t offset, uint64_t length) const;

 private:
  Mappable mappable() const { return {this, fd_.get(), size_.load(), facts_.page_size}; }
  absl::Status CheckSeals(bool unsealed);

  const UniqueFd fd_;
  const Facts facts_;
  std::atomic<uint64_t> size_;  // Bytes, as last seen.
  std::atomic<int> seals_;      // As last seen: they are never taken off.
  Mappings& mappings_;
};

}  // namespace mrd::memory

#endif  // MRD_DAEMON_MEMORY_BUFFER_H_
