#include "daemon/memory/mapping_cache.h"

#include <errno.h>
#include <string.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "mrd/v1/status.h"

namespace mrd::memory {

Extent ExtentToMap(const Mappable& buffer, uint64_t offset, uint64_t length, uint64_t whole) {
  const uint64_t mask = buffer.page_size - 1;
  if (buffer.size <= whole) return {0, (buffer.size + mask) & ~mask};
  const uint64_t begin = offset & ~mask;
  return {begin, ((offset + length + mask) & ~mask) - begin};
}

absl::Status MappingError(int errno_value, uint64_t length) {
  return MakeError(
      v1::DEVICE_ERROR,
      absl::StrCat("the daemon cannot map ", length, " bytes: ", strerror(errno_value)),
      {.errno_value = errno_value,
       .advice = errno_value == ENOMEM
                     ? "The operator should look at vm.max_map_count and at LimitAS of the daemon"
                     : "Pass a descriptor that allows a shared, writable mapping"});
}

void MappingCache::TakeLocked(Lru::iterator entry, Lru& out) {
  bytes_ -= entry->mapping->length();
  by_key_.erase(entry->key);
  out.splice(out.end(), lru_, entry);
}

absl::StatusOr<std::shared_ptr<Mapping>> MappingCache::Get(const Mappable& buffer, uint64_t offset,
                                                           uint64_t length) {
  {
    MutexLock lock(mutex_);
    const auto found = by_key_.find(buffer.key);
    if (found != by_key_.end() && found->second->mapping->Covers(offset, length)) {
      lru_.splice(lru_.begin(), lru_, found->second);
      return found->second->mapping;
    }
  }
  const Extent extent = ExtentToMap(buffer, offset, length, limits_.whole);
  auto mapping = Mapping::Make(buffer.fd, extent.offset, extent.length, 0);
  if (!mapping) return MappingError(errno, extent.length);

  Lru gone;  // Declared before the lock: unmapped after it is released.
  MutexLock lock(mutex_);
  // Two calls may have mapped the same buffer at once: the later one's stays, the other's lives as
  // long as it is used.
  const auto found = by_key_.find(buffer.key);
  if (found != by_key_.end()) TakeLocked(found->second, gone);
  lru_.push_front({buffer.key, mapping});
  by_key_[buffer.key] = lru_.begin();
  bytes_ += mapping->length();
  while (lru_.size() > 1 && (lru_.size() > limits_.count || bytes_ > limits_.bytes)) {
    TakeLocked(std::prev(lru_.end()), gone);
  }
  return mapping;
}

bool MappingCache::Has(const void* key, uint64_t offset, uint64_t length) {
  MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  return found != by_key_.end() && found->second->mapping->Covers(offset, length);
}

void MappingCache::Forget(const void* key) {
  Lru gone;  // Declared before the lock: unmapped after it is released.
  MutexLock lock(mutex_);
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) TakeLocked(found->second, gone);
}

size_t MappingCache::count() {
  MutexLock lock(mutex_);
  return lru_.size();
}

}  // namespace mrd::memory
