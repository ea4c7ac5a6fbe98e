#include "daemon/memory/mapping.h"

#include <sys/mman.h>

#include <algorithm>

namespace mrd::memory {
namespace {

constexpr uint64_t kChunk = 2 << 20;
// A call holds the address space's lock all the time: who maps something meanwhile waits for it,
// and all others' page faults behind that one.
constexpr uint64_t kStep = 32 << 20;
// Below this, populating is a system call more and saves nothing.
constexpr uint64_t kPopulateFrom = 64 << 10;

}  // namespace

std::shared_ptr<Mapping> Mapping::Make(int fd, uint64_t offset, uint64_t length, uint64_t address) {
  const int fixed = address ? MAP_FIXED_NOREPLACE : 0;
  void* base = mmap(reinterpret_cast<void*>(address), length, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE | fixed, fd, static_cast<off_t>(offset));
  if (base == MAP_FAILED) return nullptr;
  madvise(base, length, MADV_DONTDUMP);
  return std::shared_ptr<Mapping>(new Mapping(static_cast<char*>(base), offset, length));
}

Mapping::Mapping(char* base, uint64_t offset, uint64_t length)
    : base_(base), offset_(offset), length_(length) {}

Mapping::~Mapping() { munmap(base_, length_); }

void Mapping::Populate(uint64_t offset, uint64_t length) {
  if (length < kPopulateFrom) return;
  const uint64_t first = (offset - offset_) / kChunk;
  const uint64_t last = (offset - offset_ + length - 1) / kChunk;
  uint64_t begin = first;
  uint64_t end = last + 1;
  {
    MutexLock lock(mutex_);
    if (populated_.empty()) populated_.resize((length_ + kChunk - 1) / kChunk);
    while (begin < end && populated_[begin]) ++begin;
    while (end > begin && populated_[end - 1]) --end;
  }
  if (begin == end) return;
  // A fault-around brings in up to 16 pages of shmem at once, writable; MADV_POPULATE_WRITE goes
  // page by page. On kernels without it (before 5.14) the pin itself faults the pages in. Chunks
  // are widened only within what is asked for: absent pages beside the range must not be made.
  const uint64_t from = std::max(begin * kChunk, (offset - offset_) & ~uint64_t{4095});
  const uint64_t to = std::min(end * kChunk, offset - offset_ + length);
  for (uint64_t at = from; at < to; at += kStep) {
    if (madvise(base_ + at, std::min(kStep, to - at), MADV_POPULATE_READ) != 0) return;
  }
  MutexLock lock(mutex_);
  for (uint64_t chunk = begin; chunk < end; ++chunk) {
    const bool whole = from <= chunk * kChunk && std::min((chunk + 1) * kChunk, length_) <= to;
    if (whole) populated_[chunk] = true;
  }
}

}  // namespace mrd::memory
