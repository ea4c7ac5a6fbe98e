#include "tests/e2e/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "tests/e2e/common.h"

namespace mrd::e2e {

Memory::Memory(uint64_t size, const MemoryOptions& options)
    : fd_(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | options.flags)), size_(size) {
  Require(fd_ && ftruncate(fd_.get(), static_cast<off_t>(size)) == 0, "memfd_create");
  if (options.sealed) Require(fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0, "F_ADD_SEALS");
  const int fixed = options.at != 0 ? MAP_FIXED_NOREPLACE : 0;
  void* data = mmap(reinterpret_cast<void*>(options.at), size, PROT_READ | PROT_WRITE,
                    MAP_SHARED | fixed, fd_.get(), 0);
  Require(data != MAP_FAILED, "mmap");
  data_ = static_cast<char*>(data);
  if (options.populated) Require(madvise(data_, size, MADV_POPULATE_WRITE) == 0, "populate");
}

Memory::Memory(Memory&& other) noexcept
    : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}

void Fill(int fd, uint64_t size) {
  const std::string zeros(size, '\0');
  Require(pwrite(fd, zeros.data(), size, 0) == static_cast<ssize_t>(size), "pwrite");
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace mrd::e2e
