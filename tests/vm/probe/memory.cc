#include "tests/vm/probe/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/udmabuf.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace probe {
namespace {

using mrd::internal::UniqueFd;

constexpr int kProtection = PROT_READ | PROT_WRITE;

// Within the window of client/address_window.h, and apart from what the library maps there at
// random, mostly: MAP_FIXED_NOREPLACE says so when not. A multiple of all page sizes.
uint64_t NextAddress() {
  static uint64_t next = 0x6b0000000000;
  return next += uint64_t{1} << 32;
}

absl::StatusOr<void*> MapAt(uint64_t address, uint64_t size, int fd) {
  void* const wanted = reinterpret_cast<void*>(address);
  void* const mapped = mmap(wanted, size, kProtection, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
  if (mapped == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mmap of ", size, " bytes"));
  }
  return mapped;
}

}  // namespace

absl::StatusOr<Memfd> MakeMemfd(const MemfdOptions& options) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (options.hugetlb ? MFD_HUGETLB : 0);
  Memfd memfd = {.fd = UniqueFd(memfd_create("probe", flags))};
  const int fd = memfd.fd.get();
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(options.size)) != 0) {
    return absl::ErrnoToStatus(errno, "memfd");
  }
  auto mapped = MapAt(options.address != 0 ? options.address : NextAddress(), options.size, fd);
  if (!mapped.ok()) return mapped.status();
  memfd.address = *mapped;
  if (options.populated && madvise(*mapped, options.size, MADV_POPULATE_WRITE) != 0) {
    return absl::ErrnoToStatus(errno, "MADV_POPULATE_WRITE");
  }
  const int seals =
      (options.sealed ? F_SEAL_SHRINK : 0) | (options.frozen ? F_SEAL_FUTURE_WRITE : 0);
  if (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0) {
    return absl::ErrnoToStatus(errno, "F_ADD_SEALS");
  }
  if (options.read_only) {
    memfd.fd = UniqueFd(open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_RDONLY | O_CLOEXEC));
    if (!memfd.fd.valid()) return absl::ErrnoToStatus(errno, "open for reading");
  }
  return memfd;
}

const std::vector<std::string>& BadKinds() {
  static const std::vector<std::string> kinds = {"pipe",  "directory", "o_path",  "socket",
                                                 "epoll", "eventfd",   "timerfd", "pidfd",
                                                 "file",  "null",      "proc"};
  return kinds;
}

absl::StatusOr<UniqueFd> MakeBadFd(const std::string& kind) {
  int fd = -1;
  errno = EINVAL;
  if (kind == "pipe") {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) == 0) {
      close(ends[1]);
      fd = ends[0];
    }
  } else if (kind == "directory") {
    fd = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  } else if (kind == "o_path") {
    fd = open("/tmp", O_PATH | O_CLOEXEC);
  } else if (kind == "socket") {
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  } else if (kind == "epoll") {
    fd = epoll_create1(EPOLL_CLOEXEC);
  } else if (kind == "eventfd") {
    fd = eventfd(0, EFD_CLOEXEC);
  } else if (kind == "timerfd") {
    fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  } else if (kind == "pidfd") {
    fd = static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0));
  } else if (kind == "file") {
    fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  } else if (kind == "null") {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  } else if (kind == "proc") {
    fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  }
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("bad descriptor ", kind));
  return UniqueFd(fd);
}

absl::StatusOr<UniqueFd> MakeDmaBuf(int memfd, uint64_t size) {
  const UniqueFd device(open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
  if (!device.valid()) return absl::ErrnoToStatus(errno, "/dev/udmabuf");
  udmabuf_create create = {};
  create.memfd = static_cast<uint32_t>(memfd);
  create.flags = UDMABUF_FLAGS_CLOEXEC;
  create.size = size;
  UniqueFd fd(ioctl(device.get(), UDMABUF_CREATE, &create));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "UDMABUF_CREATE");
  return fd;
}

}  // namespace probe
