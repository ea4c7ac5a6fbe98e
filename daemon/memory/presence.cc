#include "daemon/memory/presence.h"

#include <errno.h>
#include <sys/mman.h>

#include <algorithm>

#include "daemon/memory/mapping_cache.h"

namespace mrd::memory {
namespace {

constexpr uint64_t kPage = 4096;
// Pages a look: mincore(2) holds the address space's lock, which others want too.
constexpr uint64_t kPages = 4096;

// Where no file has a page.
constexpr off_t kFarBeyond = off_t{1} << 60;

// mincore(2) tells a process that neither owns nor may write the file that all of it is there, a
// page far beyond its end too.
bool MayAsk(int fd) {
  void* const base = mmap(nullptr, kPage, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, kFarBeyond);
  if (base == MAP_FAILED) return false;
  unsigned char present = 1;
  const bool told = mincore(base, kPage, &present) == 0;
  munmap(base, kPage);
  return told && (present & 1) == 0;
}

}  // namespace

absl::StatusOr<uint64_t> PresentFrom(int fd, uint64_t offset, uint64_t length,
                                     absl::FunctionRef<bool()> stop) {
  if (!MayAsk(fd)) return 0;
  const uint64_t end = offset + length;
  for (uint64_t at = offset & ~(kPage - 1); at < end; at += kPages * kPage) {
    if (stop()) return absl::CancelledError("nobody waits for it any more");
    const uint64_t bytes = std::min(kPages * kPage, end - at);
    void* const base =
        mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, static_cast<off_t>(at));
    if (base == MAP_FAILED) return MappingError(errno, bytes);
    unsigned char present[kPages];
    const bool told = mincore(base, bytes, present) == 0;
    const int error = errno;
    munmap(base, bytes);
    if (!told) return MappingError(error, bytes);
    const uint64_t pages = (bytes + kPage - 1) / kPage;
    const uint64_t page =
        std::find_if(present, present + pages, [](unsigned char p) { return (p & 1) == 0; }) -
        present;
    if (page < pages) return std::max(at + page * kPage, offset) - offset;
  }
  return length;
}

}  // namespace mrd::memory
