// Mappings at addresses that clients choose, for devices that take the address of the registering
// process for the region's (siw ignores iova). Two clients may use the same addresses: a mapping in
// use keeps others waiting, an idle one makes way. Only a window that nothing else of the daemon
// lies in is offered: a free choice would let clients probe and break the daemon's address space.
#ifndef MRD_DAEMON_MEMORY_ADDRESS_WINDOW_H_
#define MRD_DAEMON_MEMORY_ADDRESS_WINDOW_H_

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/memory/mapping.h"
#include "daemon/memory/mapping_cache.h"
#include "daemon/mutex.h"

namespace mrd::memory {

// [begin, end): where the client library maps its buffers. The kernel's own choices (top down from
// the stack, bottom up from the program) do not reach it. The second is for clients under
// ThreadSanitizer, which aborts at the first.
struct AddressRange {
  uint64_t begin;
  uint64_t end;
};
inline constexpr AddressRange kWindows[] = {{0x650000000000, 0x700000000000},
                                            {0x7e8000000000, 0x7f0000000000}};

// Whether all of it lies in one window.
bool InWindow(uint64_t address, uint64_t length);

// Thread-safe.
class AddressWindow {
 public:
  explicit AddressWindow(MappingLimits limits) : limits_(limits) {}

  // Keeps a mapping in its place.
  class Use {
   public:
    Use(AddressWindow* window, std::shared_ptr<Mapping> mapping)
        : window_(window), mapping_(std::move(mapping)) {}
    Use(Use&& other) noexcept : window_(other.window_), mapping_(std::move(other.mapping_)) {}
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (mapping_) window_->Release(std::move(mapping_));
    }
    Mapping& operator*() const { return *mapping_; }
    Mapping* operator->() const { return mapping_.get(); }

   private:
    AddressWindow* window_;
    std::shared_ptr<Mapping> mapping_;
  };

  // Maps the buffer so that its byte `offset` lies at `address`. Waits while another mapping in use
  // overlaps, until the deadline (BUSY). Errors: ADDRESS_UNUSABLE, MISALIGNED, BUSY, DEVICE_ERROR.
  absl::StatusOr<Use> Get(const Mappable& buffer, uint64_t address, uint64_t offset,
                          uint64_t length, std::chrono::steady_clock::time_point deadline);

  // Whether Get would find it mapped there, and wait for nothing.
  bool Has(const void* key, uint64_t address, uint64_t offset, uint64_t length);

  // The buffer goes away. A mapping of it that is in use goes when that use ends.
  void Forget(const void* key);

  size_t count();

 private:
  struct Entry {
    // Whether byte `offset` of the buffer lies at `address`, and all of the range is mapped.
    bool Serves(const void* buffer, uint64_t address, uint64_t offset, uint64_t length) const {
      return key == buffer && mapping->Covers(offset, length) &&
             mapping->address() + (offset - mapping->offset()) == address;
    }
    const void* key;  // Null: forgotten.
    std::shared_ptr<Mapping> mapping;
    int users = 0;
    std::list<uint64_t>::iterator lru;
  };
  using Table = std::map<uint64_t, Entry>;  // By address.

  // Mappings that have left the table, on their way out of the address space. Their place is not
  // free before that: moving_ keeps others waiting meanwhile. Declared before a lock, so that it
  // ends after it: unmapping may take long.
  class Departing {
   public:
    explicit Departing(AddressWindow* window) : window_(window) {}
    Departing(const Departing&) = delete;
    Departing& operator=(const Departing&) = delete;
    ~Departing() { Unmap(); }
    void Add(std::shared_ptr<Mapping> mapping) { mappings_.push_back(std::move(mapping)); }
    // REQUIRES: the window's lock is not held.
    void Unmap();

   private:
    AddressWindow* const window_;
    std::vector<std::shared_ptr<Mapping>> mappings_;
  };

  void Release(std::shared_ptr<Mapping> mapping);
  void RemoveLocked(Table::iterator entry, Departing& departing) MRD_REQUIRES(mutex_);
  bool IsMovingLocked(uint64_t address, uint64_t length) const MRD_REQUIRES(mutex_);
  Table::iterator FindOverlapLocked(uint64_t address, uint64_t length) MRD_REQUIRES(mutex_);

  const MappingLimits limits_;
  Mutex mutex_;
  CondVar released_;
  Table table_ MRD_GUARDED_BY(mutex_);
  std::list<uint64_t> lru_ MRD_GUARDED_BY(mutex_);  // Addresses, the most recently used first.
  // What is being mapped or unmapped, with no lock held: address to length.
  std::map<uint64_t, uint64_t> moving_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::memory

#endif  // MRD_DAEMON_MEMORY_ADDRESS_WINDOW_H_
