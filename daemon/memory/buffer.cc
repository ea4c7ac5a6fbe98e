#include "daemon/memory/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "mrd/v1/status.h"

namespace mrd::memory {
namespace {

constexpr uint64_t kBasePage = 4096;

uint64_t WholePages(uint64_t bytes) { return (bytes + kBasePage - 1) & ~(kBasePage - 1); }

}  // namespace

Buffer::~Buffer() { Unmap(); }

void Buffer::Unmap() {
  mappings_.cache.Forget(this);
  mappings_.window.Forget(this);
}

absl::Status Buffer::Check(uint64_t offset, uint64_t length, uint64_t address, bool unsealed,
                           Seen* seen) {
  if (length == 0) {
    return MakeError(v1::INVALID_LENGTH, "length is 0", {.advice = "Register at least one byte"});
  }
  uint64_t size = size_.load(std::memory_order_relaxed);
  if (length > size || offset > size - length) {
    // It may have grown since.
    struct stat now;
    if (!dma_buf() && fstat(fd_.get(), &now) == 0) size_ = size = now.st_size;
  }
  if (length > size || offset > size - length) {
    return MakeError(
        v1::OUT_OF_RANGE,
        absl::StrFormat("offset %d and length %d do not lie within the buffer of %d bytes", offset,
                        length, size),
        {.limit_name = "bytes of the buffer",
         .limit = size,
         .advice = "Pass a range within the buffer, or a larger buffer"});
  }
  if (address % kBasePage != offset % kBasePage) {
    return MakeError(
        v1::MISALIGNED,
        absl::StrFormat("addr 0x%x and offset 0x%x differ modulo 4096", address, offset),
        {.advice = "addr minus offset, where the buffer starts, must be a multiple of 4096"});
  }
  if (address > UINT64_MAX - length) {
    return MakeError(
        v1::ADDRESS_UNUSABLE,
        absl::StrFormat("addr 0x%x and length %d run past the end of the address space", address,
                        length),
        {.advice = "Pass the address at which the client has the range mapped"});
  }
  if (dma_buf()) return absl::OkStatus();
  if (auto sealed = CheckSeals(unsealed); !sealed.ok()) return sealed;
  return CheckPresent(offset, length, seen);
}

absl::Status Buffer::CheckSeals(bool unsealed) {
  // The kernel pins for writing whatever the access: a read-only descriptor would need a private
  // copy.
  constexpr int kNoWriting = F_SEAL_WRITE | F_SEAL_FUTURE_WRITE;
  if (!facts_.writable || (facts_.seals & kNoWriting) != 0) {
    return MakeError(v1::BUFFER_READ_ONLY,
                     facts_.writable
                         ? "the buffer is sealed against writing"
                         : "the buffer's descriptor is not open for reading and writing",
                     {.advice = "Pass a descriptor opened O_RDWR, without F_SEAL_WRITE and "
                                "F_SEAL_FUTURE_WRITE; pinning needs it whatever the access"});
  }
  if (unsealed || (seals_.load(std::memory_order_relaxed) & F_SEAL_SHRINK) != 0) {
    return absl::OkStatus();
  }
  const int seals = fcntl(fd_.get(), F_GET_SEALS);
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0) {
    seals_ = seals;
    return absl::OkStatus();
  }
  const bool sealable = seals >= 0 && (seals & F_SEAL_SEAL) == 0;
  return MakeError(
      v1::NOT_SEALED, "the buffer can be truncated while the device uses it",
      {.advice = sealable ? "Add F_SEAL_SHRINK with fcntl(F_ADD_SEALS) before registering"
                          : "It cannot be sealed: use memfd_create(MFD_ALLOW_SEALING), "
                            "or ask the operator to allow unsealed buffers"});
}

absl::Status Buffer::CheckPresent(uint64_t offset, uint64_t length, Seen* seen) {
  if (offset >= seen->begin && offset + length <= seen->end) return absl::OkStatus();
  const auto absent = [](uint64_t at) {
    return MakeError(
        v1::NOT_POPULATED, absl::StrFormat("the buffer has no page at offset %d yet", at),
        {.advice =
             "Touch it first (write to it, or MADV_POPULATE_WRITE; fallocate(2) is not enough): "
             "pinning would allocate its pages on the daemon's account"});
  };
  // A search goes page by page to the first hole, so mostly to the end of the file: milliseconds
  // for a large one. Of a file whose size is sealed the count of blocks alone tells whether all of
  // it is there.
  const bool counts = facts_.kind == Kind::kShmem && CountsExactly();
  struct stat now;
  if (fstat(fd_.get(), &now) < 0) return MappingError(errno, length);
  const uint64_t size = now.st_size;
  const uint64_t allocated = static_cast<uint64_t>(now.st_blocks) * 512;
  if (facts_.kind == Kind::kHugetlb) {
    // hugetlbfs has no SEEK_HOLE; its block count tells whether all of the file is there.
    if (allocated < size) return absent(allocated);
    *seen = {0, size};
    return absl::OkStatus();
  }
  if (counts && allocated == WholePages(size)) {
    *seen = {0, size};
    return absl::OkStatus();
  }
  const off_t hole = FindHole(offset);
  if (hole < 0) return MappingError(errno, length);
  *seen = {offset, static_cast<uint64_t>(hole)};
  return seen->end >= offset + length ? absl::OkStatus() : absent(hole);
}

bool Buffer::CountsExactly() {
  constexpr int kFixedSize = F_SEAL_SHRINK | F_SEAL_GROW;
  if ((seals_.load(std::memory_order_relaxed) & kFixedSize) != kFixedSize) return false;
  if (trimmed_.load(std::memory_order_relaxed)) return true;
  // fallocate(2) can have made pages beyond the end, before the seal. Nobody can ever reach them:
  // they only make the count lie. This frees them, and no more can come. The end is asked for after
  // the seals were seen: it is the last one, and no page of the client's lies beyond it.
  struct stat sealed;
  if (fstat(fd_.get(), &sealed) < 0) return false;
  const auto end = static_cast<off_t>(WholePages(sealed.st_size));
  constexpr off_t kLast = std::numeric_limits<off_t>::max();
  if (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, end, kLast - end) != 0) {
    return false;
  }
  return trimmed_ = true;
}

off_t Buffer::FindHole(uint64_t from) {
  // SEEK_HOLE moves the file offset, which this descriptor shares with the client's: put it back.
  // One search at a time, or a later one would take an earlier one's hole for the client's offset.
  MutexLock lock(offset_mutex_);
  const off_t before = lseek(fd_.get(), 0, SEEK_CUR);
  const off_t hole = lseek(fd_.get(), static_cast<off_t>(from), SEEK_HOLE);
  const int error = errno;
  lseek(fd_.get(), before, SEEK_SET);
  errno = error;
  return hole;
}

absl::StatusOr<std::shared_ptr<Mapping>> Buffer::Map(uint64_t offset, uint64_t length) {
  return mappings_.cache.Get(mappable(), offset, length);
}

absl::StatusOr<AddressWindow::Use> Buffer::MapAt(uint64_t address, uint64_t offset, uint64_t length,
                                                 std::chrono::steady_clock::time_point deadline) {
  return mappings_.window.Get(mappable(), address, offset, length, deadline);
}

bool Buffer::IsMapped(uint64_t offset, uint64_t length) const {
  return mappings_.cache.Has(this, offset, length);
}

bool Buffer::IsMappedAt(uint64_t address, uint64_t offset, uint64_t length) const {
  return mappings_.window.Has(this, address, offset, length);
}

}  // namespace mrd::memory
