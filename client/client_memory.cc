// The part of Client that makes and takes memory.
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "client/buffer_state.h"
#include "client/client.h"
#include "client/local_error.h"
#include "client/mapping_check.h"
#include "client/populate.h"
#include "client/shared_memory.h"
#include "mrd/v1/status.h"

namespace mrd {
namespace {

using internal::LocalError;
using internal::SharedMemory;
using internal::UniqueFd;

constexpr size_t kMostNameBytes = 249;  // memfd_create(2).

internal::PageKind KindOf(Pages pages) {
  switch (pages) {
    case Pages::kTransparentHuge:
      return internal::PageKind::kTransparentHuge;
    case Pages::kHuge2M:
      return internal::PageKind::kHuge2M;
    case Pages::kBase4K:
      break;
  }
  return internal::PageKind::kBase4K;
}

// What `fd` is, by its name in /proc; empty: that is not there.
std::string NameOf(int fd) {
  char name[256];
  const ssize_t length =
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name);
  return std::string(name, std::max<ssize_t>(length, 0));
}

absl::Status ReadOnly(const std::string& why, std::string advice) {
  return MakeError(v1::BUFFER_READ_ONLY, "cannot adopt the buffer: " + why,
                   {.advice = std::move(advice) + " Pinning needs to write, whatever the access."});
}

// The daemon would refuse it too, but after its pages were made, and without knowing its name.
absl::Status CheckObject(int fd) {
  if (internal::IsDmaBuf(fd)) return absl::OkStatus();
  // shmem and hugetlbfs know of seals, nothing else does (mm/memfd.c).
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    const int error = errno;
    const std::string name = NameOf(fd);
    if (name.empty()) return absl::OkStatus();  // A dma-buf, perhaps.
    return MakeError(v1::NOT_SHARED_MEMORY,
                     "cannot adopt " + name + ": " +
                         (error == EBADF ? "it was opened with O_PATH" : "it is not shared memory"),
                     {.errno_value = error,
                      .advice = "Adopt a memfd, a hugetlb memfd, POSIX shm, a hugetlbfs file or a "
                                "dma-buf."});
  }
  if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR) {
    return ReadOnly("the descriptor is not open for reading and writing", "Open it O_RDWR.");
  }
  for (const auto& [seal, seal_name] : {std::pair(F_SEAL_WRITE, "F_SEAL_WRITE"),
                                        std::pair(F_SEAL_FUTURE_WRITE, "F_SEAL_FUTURE_WRITE")}) {
    if ((seals & seal) == 0) continue;
    return ReadOnly(std::string("it is sealed against writing (") + seal_name + ")",
                    "Leave out that seal.");
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> Duplicate(int fd) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) {
    return LocalError(
        errno == EBADF ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kResourceExhausted,
        "cannot adopt descriptor " + std::to_string(fd), errno,
        errno == EBADF    ? "Give one that is open: what memfd_create or shm_open returned."
        : errno == EMFILE ? "Raise the limit of open files (ulimit -n) of this process."
                          : "");
  }
  if (absl::Status usable = CheckObject(copy.get()); !usable.ok()) return usable;
  return copy;
}

absl::Status Misaligned(const char* what, uint64_t value, uint64_t page_size) {
  return MakeError(v1::MISALIGNED,
                   std::string(what) + " " + std::to_string(value) +
                       " of a buffer is not a multiple of its page size " +
                       std::to_string(page_size),
                   {.advice = "Give the address that mmap returned and the offset it was given, "
                              "multiples of " +
                              std::to_string(page_size) + "."});
}

// What AdoptOptions asks for, on mapped memory.
absl::Status Prepare(const SharedMemory& memory, const AdoptOptions& options) {
  if (options.seal && fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) {
    return LocalError(absl::StatusCode::kFailedPrecondition, "cannot seal the buffer", errno,
                      errno == EPERM
                          ? "Make it with memfd_create(..., MFD_ALLOW_SEALING), and leave out "
                            "F_SEAL_SEAL."
                          : "Only memfds can be sealed.");
  }
  if (!options.populate) return absl::OkStatus();
  const int error = internal::Populate(memory.data(), memory.size());
  // EINVAL: not for this kind of mapping (a dma-buf's), or an old kernel. The daemon looks whether
  // the pages are there, and says so if not.
  if (error == 0 || error == EINVAL) return absl::OkStatus();
  return LocalError(
      absl::StatusCode::kResourceExhausted, "cannot make all pages of the buffer present", error,
      error == EFAULT   ? "The mapping reaches beyond the end of its object, or there is no memory "
                          "left for it (a tmpfs or cgroup limit)."
      : error == ENOMEM ? "Some of the range is not mapped, or there is no memory left for it."
                        : "");
}

}  // namespace

absl::StatusOr<Buffer> Client::CreateBuffer(uint64_t size, BufferOptions options) const {
  if (absl::Status usable = SessionStatus(); !usable.ok()) return usable;
  if (options.name == nullptr) options.name = "";
  if (strlen(options.name) > kMostNameBytes) {
    return MakeError(
        v1::REQUEST_INVALID,
        "cannot make a buffer with a name of " + std::to_string(strlen(options.name)) + " bytes",
        {.limit_name = "bytes of a buffer's name",
         .limit = kMostNameBytes,
         .advice = "Use at most " + std::to_string(kMostNameBytes) + " bytes."});
  }
  auto memory = internal::CreateSharedMemory(size, KindOf(options.pages), options.name);
  if (!memory.ok()) return memory.status();
  return Buffer(std::make_shared<internal::BufferState>(session_, std::move(*memory), 0, size));
}

absl::StatusOr<Buffer> Client::AdoptBuffer(int fd, void* addr, uint64_t size,
                                           AdoptOptions options) const {
  if (absl::Status usable = SessionStatus(); !usable.ok()) return usable;
  auto copy = Duplicate(fd);
  if (!copy.ok()) return copy.status();
  const uint64_t page_size = internal::PageSizeOf(copy->get());
  if (size == 0 || size > internal::kMostBytes) {
    return MakeError(v1::INVALID_LENGTH,
                     "cannot adopt a buffer of " + std::to_string(size) + " bytes",
                     {.advice = "Give the size of the mapping at addr."});
  }
  if (const auto address = reinterpret_cast<uint64_t>(addr); address % page_size != 0) {
    return Misaligned("address", address, page_size);
  }
  if (options.offset % page_size != 0) return Misaligned("offset", options.offset, page_size);
  if (addr == nullptr) {
    return MakeError(v1::ADDRESS_UNUSABLE, "cannot adopt a buffer at address null",
                     {.advice = "Give the address that mmap returned, or none: then the library "
                                "maps the descriptor."});
  }
  // mmap made whole pages of it, which are there to be used.
  const uint64_t mapped = (size + page_size - 1) / page_size * page_size;
  if (!internal::IsDmaBuf(copy->get())) {
    absl::Status is_so = internal::CheckMapping(copy->get(), addr, mapped, options.offset);
    if (!is_so.ok()) return is_so;
  }
  SharedMemory memory(std::move(*copy), addr, mapped, page_size, /*owned=*/false);
  if (absl::Status ready = Prepare(memory, options); !ready.ok()) return ready;
  return Buffer(
      std::make_shared<internal::BufferState>(session_, std::move(memory), options.offset, size));
}

absl::StatusOr<Buffer> Client::AdoptBuffer(int fd, AdoptOptions options) const {
  if (absl::Status usable = SessionStatus(); !usable.ok()) return usable;
  auto copy = Duplicate(fd);
  if (!copy.ok()) return copy.status();
  const uint64_t page_size = internal::PageSizeOf(copy->get());
  if (options.offset % page_size != 0) return Misaligned("offset", options.offset, page_size);
  const uint64_t object_size = internal::SizeOf(copy->get());
  if (object_size <= options.offset) {
    return MakeError(v1::INVALID_LENGTH,
                     "cannot adopt an object of " + std::to_string(object_size) +
                         " bytes, from offset " + std::to_string(options.offset),
                     {.advice = "Adopt shared memory that has its size already (ftruncate)."});
  }
  const uint64_t size = object_size - options.offset;
  auto memory = internal::MapSharedMemory(std::move(*copy), options.offset, size);
  if (!memory.ok()) return memory.status();
  if (absl::Status ready = Prepare(*memory, options); !ready.ok()) return ready;
  return Buffer(
      std::make_shared<internal::BufferState>(session_, std::move(*memory), options.offset, size));
}

}  // namespace mrd
