#include "tests/memory/file_lock_holder.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace mrd::memory {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

FileLockHolder::FileLockHolder(int fd)
    : faults_(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK))),
      page_(mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
  uffdio_api api{};
  api.api = UFFD_API;
  uffdio_register range{};
  range.range = {reinterpret_cast<uint64_t>(page_), kPage};
  range.mode = UFFDIO_REGISTER_MODE_MISSING;
  if (!faults_ || ioctl(faults_.get(), UFFDIO_API, &api) != 0 ||
      ioctl(faults_.get(), UFFDIO_REGISTER, &range) != 0) {
    return;
  }
  writer_ = std::thread([this, fd] {
    // The result does not matter: the page comes, as zeroes, at the end.
    [[maybe_unused]] const ssize_t written = pwrite(fd, page_, 1, 0);
  });
  pollfd poll_fd{faults_.get(), POLLIN, 0};
  holds_ = poll(&poll_fd, 1, 5000) == 1;
}

FileLockHolder::~FileLockHolder() {
  faults_.reset();  // The fault goes on as an ordinary one.
  if (writer_.joinable()) writer_.join();
  munmap(page_, kPage);
}

}  // namespace mrd::memory
