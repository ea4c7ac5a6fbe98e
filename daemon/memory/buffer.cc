#include "daemon/memory/buffer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/memory/presence.h"
#include "mrd/v1/status.h"

namespace mrd::memory {
namespace {

constexpr uint64_t kBasePage = 4096;

uint64_t WholePages(uint64_t bytes) { return (bytes + kBasePage - 1) & ~(kBasePage - 1); }

absl::Status OutOfRange(uint64_t offset, uint64_t length, uint64_t size) {
  return MakeError(
      v1::OUT_OF_RANGE,
      absl::StrFormat("offset %d and length %d do not lie within the buffer of %d bytes", offset,
                      length, size),
      {.limit_name = "bytes of the buffer",
       .limit = size,
       .advice = "Pass a range within the buffer, or a larger buffer"});
}

bool Within(uint64_t offset, uint64_t length, uint64_t size) {
  return length <= size && offset <= size - length;
}

}  // namespace

Buffer::~Buffer() { Unmap(); }

void Buffer::Unmap() {
  mappings_.cache.Forget(this);
  mappings_.window.Forget(this);
}

absl::Status Buffer::Check(uint64_t offset, uint64_t length, uint64_t address, bool unsealed) {
  if (length == 0) {
    return MakeError(v1::INVALID_LENGTH, "length is 0", {.advice = "Register at least one byte"});
  }
  if (!Within(offset, length, size_.load(std::memory_order_relaxed))) {
    // It may have grown since.
    struct stat now;
    if (!dma_buf() && fstat(fd_.get(), &now) == 0) size_ = now.st_size;
    if (const uint64_t size = size_; !Within(offset, length, size)) {
      return OutOfRange(offset, length, size);
    }
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
  return dma_buf() ? absl::OkStatus() : CheckSeals(unsealed);
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

absl::Status Buffer::CheckPresent(uint64_t offset, uint64_t length, Seen* seen,
                                  absl::FunctionRef<bool()> stop) {
  const uint64_t end = offset + length;
  if (dma_buf() || (offset >= seen->begin && end <= seen->end)) return absl::OkStatus();
  struct stat now;
  // glibc's fstat(3) is newfstatat(2) with an empty path, which costs twice as much: each small
  // registration waits for it. The structs are the same (kernel: include/uapi/asm-generic/stat.h,
  // arch/x86/include/uapi/asm/stat.h).
  if (syscall(SYS_fstat, fd_.get(), &now) < 0) return MappingError(errno, length);
  const uint64_t size = now.st_size;
  size_ = size;
  if (!Within(offset, length, size)) return OutOfRange(offset, length, size);

  // Only what takes no lock of the file's is asked for: a client can hold that one as long as it
  // likes, with a write(2) whose source is a page that never comes. So no SEEK_HOLE. The count of
  // blocks tells at once whether all of a file is there. fallocate(2) can have made pages beyond
  // its end, which make the count lie: that fools nobody but the client, which could as well punch
  // its holes after this check.
  const uint64_t allocated = static_cast<uint64_t>(now.st_blocks) * 512;
  const char kAdvice[] =
      "Touch it first (write to it, or MADV_POPULATE_WRITE; fallocate(2) is not enough): pinning "
      "would allocate its pages on the daemon's account";
  if (facts_.kind == Kind::kHugetlb) {
    // Of huge pages nothing but the count can be asked for.
    if (allocated < size) {
      return MakeError(v1::NOT_POPULATED,
                       absl::StrFormat("of the buffer's %d bytes of huge pages only %d are there; "
                                       "all must be, whatever the range",
                                       size, allocated),
                       {.advice = kAdvice});
    }
  } else if (allocated != WholePages(size)) {
    const bool joins = offset <= seen->end && end >= seen->begin;
    const Seen unseen[] = {{offset, joins ? seen->begin : end}, {joins ? seen->end : end, end}};
    for (const Seen& part : unseen) {
      if (part.begin >= part.end) continue;
      const auto present = PresentFrom(fd_.get(), part.begin, part.end - part.begin, stop);
      if (!present.ok()) return present.status();
      if (const uint64_t missing = part.begin + *present; missing < part.end) {
        return MakeError(
            v1::NOT_POPULATED,
            absl::StrFormat("the buffer has no page at offset %d yet", missing & ~(kBasePage - 1)),
            {.advice = kAdvice});
      }
    }
    *seen =
        joins ? Seen{std::min(offset, seen->begin), std::max(end, seen->end)} : Seen{offset, end};
    return absl::OkStatus();
  }
  *seen = {0, size};
  return absl::OkStatus();
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
