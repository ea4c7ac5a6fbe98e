#include "daemon/memory/inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "mrd/v1/status.h"

namespace mrd::memory {
namespace {

constexpr uint32_t kBasePage = 4096;

// Its name in /proc, which asks no file system and waits for no lock that a client can hold.
std::string NameOf(int fd) {
  char path[64];
  char target[128];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(path, target, sizeof target);
  return std::string(target, length > 0 ? length : 0);
}

// A dma-buf is named /dmabuf: and shows `exp_name:` in its fdinfo (drivers/dma-buf/dma-buf.c). Of
// nothing else is fdinfo asked: an epoll's waits for a lock that its owner can hold for ever.
bool IsDmaBuf(int fd, const std::string& name) {
  if (!absl::StartsWith(name, "/dmabuf:")) return false;
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
  const int info = open(path, O_RDONLY | O_CLOEXEC);
  if (info < 0) return false;
  char text[4096];
  const ssize_t length = read(info, text, sizeof text - 1);
  close(info);
  if (length <= 0) return false;
  text[length] = '\0';
  return strstr(text, "\nexp_name:") != nullptr;
}

// Never quotes the client's path.
std::string Describe(const std::string& name) {
  if (absl::StartsWith(name, "pipe:")) return "a pipe";
  if (absl::StartsWith(name, "socket:")) return "a socket";
  if (absl::StartsWith(name, "anon_inode:")) return "a kernel object without pages (anon_inode)";
  if (absl::StartsWith(name, "/dev/")) return "a device file";
  return "a file or directory of another file system";
}

absl::Status NotSharedMemory(const std::string& name, int errno_value) {
  return MakeError(
      v1::NOT_SHARED_MEMORY,
      absl::StrCat("the descriptor is ",
                   errno_value == EBADF ? std::string("opened with O_PATH") : Describe(name),
                   ", not shared memory"),
      {.errno_value = errno_value,
       .advice = "Pass a memfd, a hugetlb memfd, POSIX shm, a hugetlbfs file or a dma-buf"});
}

absl::StatusOr<Facts> InspectDmaBuf(int fd) {
  const off_t size = lseek(fd, 0, SEEK_END);  // The size of a dma-buf; st_size is 0.
  if (size <= 0) return NotSharedMemory(NameOf(fd), errno);
  return Facts{.kind = Kind::kDmaBuf,
               .size = static_cast<uint64_t>(size),
               .page_size = kBasePage,
               .seals = 0,
               .writable = true};
}

}  // namespace

absl::StatusOr<Facts> Inspect(int fd) {
  // F_GET_SEALS first: mm/memfd.c answers it from the inode for shmem and hugetlbfs and refuses
  // everything else itself.
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    const int error = errno;
    const std::string name = NameOf(fd);
    if (error == EINVAL && IsDmaBuf(fd, name)) return InspectDmaBuf(fd);
    return NotSharedMemory(name, error);
  }
  struct stat stat_buf;
  struct statfs statfs_buf;
  if (fstat(fd, &stat_buf) < 0 || fstatfs(fd, &statfs_buf) < 0) {
    return NotSharedMemory(NameOf(fd), errno);
  }
  const bool huge = statfs_buf.f_type == HUGETLBFS_MAGIC;
  if (!S_ISREG(stat_buf.st_mode) || (!huge && statfs_buf.f_type != TMPFS_MAGIC)) {
    return NotSharedMemory(NameOf(fd), 0);
  }
  return Facts{.kind = huge ? Kind::kHugetlb : Kind::kShmem,
               .size = static_cast<uint64_t>(stat_buf.st_size),
               .page_size = huge ? static_cast<uint32_t>(stat_buf.st_blksize) : kBasePage,
               .seals = seals,
               .writable = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR};
}

}  // namespace mrd::memory
