#include "tests/memory/stalled_call.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace mrd::memory {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

StalledCall::StalledCall(std::function<void(void* page)> call)
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
  caller_ = std::thread([this, call = std::move(call)] { call(page_); });
  pollfd poll_fd{faults_.get(), POLLIN, 0};
  waits_ = poll(&poll_fd, 1, 5000) == 1;
}

StalledCall::~StalledCall() {
  faults_.reset();  // The fault goes on as an ordinary one.
  if (caller_.joinable()) caller_.join();
  munmap(page_, kPage);
}

}  // namespace mrd::memory
