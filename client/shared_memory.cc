#include "client/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "client/address_window.h"
#include "client/available_memory.h"
#include "client/huge_pages.h"
#include "client/local_error.h"
#include "client/populate.h"
#include "mrd/v1/status.h"

namespace mrd::internal {
namespace {

constexpr uint64_t kWorthALook = uint64_t{64} << 20;

uint64_t RoundUp(uint64_t size, uint64_t page) { return (size + page - 1) & ~(page - 1); }

// No Reason: the daemon was not asked.
absl::Status NoMemoryFor(uint64_t bytes, const MemoryLimit& memory) {
  v1::ErrorDetail detail;
  detail.set_errno_value(ENOMEM);
  detail.set_errno_name(ErrnoName(ENOMEM));
  detail.set_limit_name(memory.name);
  detail.set_limit(memory.limit);
  detail.set_used(memory.used);
  detail.set_advice("Ask for at most what is left, or end what takes memory.");
  return WithDetail(absl::ResourceExhaustedError(
                        "cannot make a buffer of " + std::to_string(bytes) + " bytes: of " +
                        std::to_string(memory.limit) + " " + memory.name + " there are " +
                        std::to_string(memory.left()) + " left. " + detail.advice()),
                    detail);
}

absl::Status CreateError(uint64_t size, PageKind pages, int errno_value) {
  const std::string what = "cannot make a buffer of " + std::to_string(size) + " bytes";
  if (pages == PageKind::kHuge2M) return HugePageError(what, size, errno_value);
  return LocalError(absl::StatusCode::kResourceExhausted, what, errno_value,
                    errno_value == ENOMEM || errno_value == EFAULT
                        ? "The machine, or the memory limit of this process's cgroup, does not "
                          "have so much memory."
                    : errno_value == EMFILE ? "Raise the limit of open files (ulimit -n)."
                                            : "");
}

}  // namespace

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(other.size_),
      page_size_(other.page_size_),
      owned_(std::exchange(other.owned_, false)) {}

SharedMemory::~SharedMemory() {
  if (owned_) munmap(data_, size_);
}

uint64_t PageSizeOf(int fd) {
  struct statfs fs;
  if (fstatfs(fd, &fs) == 0 && fs.f_type == HUGETLBFS_MAGIC) return fs.f_bsize;
  return kBasePage;
}

bool IsDmaBuf(int fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  char target[16];
  const ssize_t length = readlink(path.c_str(), target, sizeof target);
  return std::string_view(target, std::max<ssize_t>(length, 0)).starts_with("/dmabuf:");
}

uint64_t SizeOf(int fd) {
  struct stat st;
  if (fstat(fd, &st) == 0 && st.st_size > 0) return st.st_size;
  // A dma-buf has no st_size; seeking to its end (and only there and to 0) tells it.
  const off_t end = lseek(fd, 0, SEEK_END);
  if (end <= 0) return 0;
  lseek(fd, 0, SEEK_SET);
  return end;
}

absl::StatusOr<SharedMemory> CreateSharedMemory(uint64_t size, PageKind pages, const char* name) {
  if (size == 0 || size > kMostBytes) {
    return MakeError(v1::INVALID_LENGTH,
                     "cannot make a buffer of " + std::to_string(size) + " bytes",
                     {.advice = "Ask for at least 1 byte and at most what the machine has."});
  }
  const bool huge = pages == PageKind::kHuge2M;
  const uint64_t page_size = huge ? kHugePage : kBasePage;
  const uint64_t bytes = RoundUp(size, page_size);
  // Smaller ones are not worth the look; huge pages are reserved, not taken from what is available.
  if (!huge && bytes >= kWorthALook) {
    if (const MemoryLimit memory = TightestMemoryLimit(); bytes > memory.left()) {
      return NoMemoryFor(bytes, memory);
    }
  }
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | MFD_HUGE_2MB : 0U);
  UniqueFd fd(memfd_create(name, flags));
  if (!fd.valid()) return CreateError(bytes, pages, errno);
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return CreateError(bytes, pages, errno);
  // So that the daemon can rely on the pages it maps; and so that nobody can undo it.
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return CreateError(bytes, pages, errno);
  }
  const uint64_t alignment = pages == PageKind::kBase4K ? kBasePage : kHugePage;
  auto data = MapInWindow(WindowOfProgram(), fd.get(), bytes, alignment, PROT_READ | PROT_WRITE, 0);
  if (!data.ok()) {
    // A hugetlb mapping reserves its pages: where there are too few, it is mmap that fails.
    const auto detail = DetailOf(data.status());
    return huge && detail ? CreateError(bytes, pages, detail->errno_value()) : data.status();
  }
  SharedMemory memory(std::move(fd), *data, bytes, page_size, true);
  // Best effort: where /sys/kernel/mm/transparent_hugepage/shmem_enabled is "never", base pages
  // come.
  if (pages == PageKind::kTransparentHuge) madvise(*data, bytes, MADV_HUGEPAGE);
  int error = Populate(*data, bytes);
  // Kernels before 5.14 have no MADV_POPULATE_WRITE.
  if (error == EINVAL && fallocate(memory.fd(), 0, 0, static_cast<off_t>(bytes)) == 0) error = 0;
  if (error != 0) return CreateError(bytes, pages, error);
  return memory;
}

absl::StatusOr<SharedMemory> MapSharedMemory(UniqueFd fd, uint64_t offset, uint64_t size) {
  const uint64_t page_size = PageSizeOf(fd.get());
  // 2 MiB where it fits: transparent huge pages of the object can then be mapped as such.
  const uint64_t alignment = size >= kHugePage ? std::max(page_size, kHugePage) : page_size;
  const uint64_t bytes = RoundUp(size, page_size);
  auto data = MapInWindow(WindowOfProgram(), fd.get(), bytes, alignment, PROT_READ | PROT_WRITE,
                          static_cast<off_t>(offset));
  if (!data.ok()) return data.status();
  return SharedMemory(std::move(fd), *data, bytes, page_size, true);
}

}  // namespace mrd::internal
