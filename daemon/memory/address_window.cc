#include "daemon/memory/address_window.h"

#include <errno.h>

#include <utility>

#include "absl/strings/str_format.h"
#include "mrd/v1/status.h"

namespace mrd::memory {

bool InWindow(uint64_t address, uint64_t length) {
  for (const AddressRange& window : kWindows) {
    if (address >= window.begin && address < window.end && length <= window.end - address)
      return true;
  }
  return false;
}

AddressWindow::Table::iterator AddressWindow::FindOverlapLocked(uint64_t address, uint64_t length) {
  auto next = table_.lower_bound(address);
  if (next != table_.end() && next->first < address + length) return next;
  if (next == table_.begin()) return table_.end();
  auto previous = std::prev(next);
  return previous->first + previous->second.mapping->length() > address ? previous : table_.end();
}

bool AddressWindow::IsMovingLocked(uint64_t address, uint64_t length) const {
  for (const auto& [begin, bytes] : moving_) {
    if (begin < address + length && address < begin + bytes) return true;
  }
  return false;
}

void AddressWindow::RemoveLocked(Table::iterator entry, Departing& departing) {
  moving_.emplace(entry->first, entry->second.mapping->length());
  departing.Add(std::move(entry->second.mapping));
  lru_.erase(entry->second.lru);
  table_.erase(entry);
}

void AddressWindow::Departing::Unmap() {
  for (auto& mapping : mappings_) {
    const uint64_t address = mapping->address();
    mapping.reset();
    MutexLock lock(window_->mutex_);
    window_->moving_.erase(address);
    window_->released_.NotifyAll();
  }
  mappings_.clear();
}

absl::StatusOr<AddressWindow::Use> AddressWindow::Get(
    const Mappable& buffer, uint64_t address, uint64_t offset, uint64_t length,
    std::chrono::steady_clock::time_point deadline) {
  const Extent extent = ExtentToMap(buffer, offset, length, limits_.whole);
  const uint64_t at = address - (offset - extent.offset);
  if (address < offset - extent.offset || !InWindow(at, extent.length)) {
    return MakeError(
        v1::ADDRESS_UNUSABLE,
        absl::StrFormat("the device cannot register at 0x%x: it uses the registering process' own "
                        "addresses, and this one is outside the window for that",
                        address),
        {.advice =
             absl::StrFormat("Map the buffer between 0x%x and 0x%x, as the client library does",
                             kWindows[0].begin, kWindows[0].end)});
  }
  if (at % buffer.page_size != 0) {
    return MakeError(
        v1::MISALIGNED,
        absl::StrFormat("the buffer's start, at 0x%x, is not a multiple of its page size %d", at,
                        buffer.page_size),
        {.advice = "Map the buffer at a multiple of its page size"});
  }
  Departing departing(this);  // Declared before the lock.
  MutexLock lock(mutex_);
  for (;;) {
    bool wait = IsMovingLocked(at, extent.length);
    if (!wait) {
      const auto overlap = FindOverlapLocked(at, extent.length);
      if (overlap == table_.end()) break;
      Entry& entry = overlap->second;
      if (entry.key == buffer.key && entry.mapping->address() == at &&
          entry.mapping->Covers(offset, length)) {
        ++entry.users;
        lru_.splice(lru_.begin(), lru_, entry.lru);
        return Use(this, entry.mapping);
      }
      wait = entry.users > 0;
      if (!wait) {
        RemoveLocked(overlap, departing);
        mutex_.Unlock();
        departing.Unmap();
        mutex_.Lock();
      }
    }
    if (wait && !released_.WaitUntil(mutex_, deadline)) {
      return MakeError(v1::BUSY,
                       absl::StrFormat("another registration holds the addresses at 0x%x", at),
                       {.advice = "Try again"});
    }
  }
  moving_.emplace(at, extent.length);
  mutex_.Unlock();
  auto mapping = Mapping::Make(buffer.fd, extent.offset, extent.length, at);
  const int error = errno;
  mutex_.Lock();
  moving_.erase(at);
  released_.NotifyAll();
  if (!mapping && error == EEXIST) {
    return MakeError(v1::ADDRESS_UNUSABLE,
                     absl::StrFormat("something of the daemon lies at 0x%x", at),
                     {.errno_value = EEXIST, .advice = "Map the buffer elsewhere in the window"});
  }
  if (!mapping) return MappingError(error, extent.length);
  lru_.push_front(at);
  table_.emplace(at, Entry{buffer.key, mapping, 1, lru_.begin()});
  // Over the limit the oldest idle ones go.
  for (auto old = lru_.end(); table_.size() > limits_.count && old != lru_.begin();) {
    const auto entry = table_.find(*--old);
    if (entry->second.users > 0) continue;
    ++old;
    RemoveLocked(entry, departing);
  }
  return Use(this, std::move(mapping));
}

bool AddressWindow::Has(const void* key, uint64_t address, uint64_t offset, uint64_t length) {
  MutexLock lock(mutex_);
  const auto entry = FindOverlapLocked(address, length);
  return entry != table_.end() && entry->second.Serves(key, address, offset, length);
}

void AddressWindow::Release(std::shared_ptr<Mapping> mapping) {
  Departing departing(this);  // Declared before the lock.
  MutexLock lock(mutex_);
  const auto entry = table_.find(mapping->address());
  mapping.reset();  // The table holds it too; what departs must be the last one.
  if (--entry->second.users == 0 && entry->second.key == nullptr) RemoveLocked(entry, departing);
  released_.NotifyAll();
}

void AddressWindow::Forget(const void* key) {
  Departing departing(this);  // Declared before the lock.
  MutexLock lock(mutex_);
  for (auto entry = table_.begin(); entry != table_.end();) {
    const auto current = entry++;
    if (current->second.key != key) continue;
    current->second.key = nullptr;
    if (current->second.users == 0) RemoveLocked(current, departing);
  }
}

size_t AddressWindow::count() {
  MutexLock lock(mutex_);
  return table_.size();
}

}  // namespace mrd::memory
