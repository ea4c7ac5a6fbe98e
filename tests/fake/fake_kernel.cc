#include "tests/fake/fake_kernel.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace mrd::fake {

// In the file.
struct FakeKernel::Entry {
  bool used;
  int context;
  Object object;
};

struct FakeKernel::File {
  static constexpr size_t kMost = 4096;
  static File* Map(const std::string& path);

  uint32_t last_handle;
  Entry entries[kMost];
};

FakeKernel::File* FakeKernel::File::Map(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  void* mapped = MAP_FAILED;
  if (fd && ftruncate(fd.get(), sizeof(File)) == 0) {
    mapped = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  }
  if (mapped == MAP_FAILED) {
    perror(path.c_str());
    abort();
  }
  return static_cast<File*>(mapped);
}

FakeKernel::FakeKernel(const std::string& path) : file_(File::Map(path)) {}

FakeKernel::~FakeKernel() { munmap(file_, sizeof(File)); }

std::unique_ptr<FakeKernel> FakeKernel::FromEnvironment() {
  const char* const path = getenv("MRD_FAKE_KERNEL");
  return path != nullptr ? std::make_unique<FakeKernel>(path) : nullptr;
}

UniqueFd FakeKernel::Open() {
  UniqueFd fd(open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC));
  const int context = ContextOf(fd.get());
  if (context < 0) {
    perror("/dev/ptmx");
    abort();
  }
  // Its number is that of a context which nobody holds any more.
  MutexLock lock(mutex_);
  for (Entry& entry : file_->entries) {
    if (entry.context == context) entry.used = false;
  }
  return fd;
}

int FakeKernel::ContextOf(int fd) {
  int number = -1;
  return ioctl(fd, TIOCGPTN, &number) == 0 ? number : -1;
}

uint32_t FakeKernel::Make(int context, fabric::verbs::UverbsObject type, uint32_t pd,
                          fabric::verbs::MrFacts facts) {
  MutexLock lock(mutex_);
  const uint32_t handle = ++file_->last_handle;
  facts.lkey = facts.rkey = KeyOf(handle);
  for (Entry& entry : file_->entries) {
    if (entry.used) continue;
    entry.context = context;
    entry.object = {type, handle, pd, facts};
    entry.used = true;  // Last: the process may be killed before.
    return handle;
  }
  fprintf(stderr, "the fake kernel has room for %zu objects\n", File::kMost);
  abort();
}

void FakeKernel::End(uint32_t handle) {
  MutexLock lock(mutex_);
  for (Entry& entry : file_->entries) {
    if (entry.object.handle == handle) entry.used = false;
  }
}

std::vector<FakeKernel::Object> FakeKernel::Of(int context) {
  std::vector<Object> objects;
  MutexLock lock(mutex_);
  for (const Entry& entry : file_->entries) {
    if (entry.used && entry.context == context) objects.push_back(entry.object);
  }
  return objects;
}

}  // namespace mrd::fake
