// What a kernel has of its devices' contexts whoever holds their descriptors: for tests in which
// one daemon takes over from another. It is in a file, so that it outlives them.
#ifndef MRD_TESTS_FAKE_FAKE_KERNEL_H_
#define MRD_TESTS_FAKE_FAKE_KERNEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/fabric/verbs/uverbs.h"
#include "daemon/mutex.h"
#include "daemon/unique_fd.h"

namespace mrd::fake {

// Thread-safe; processes use it one after the other. A pseudo-terminal stands for each context: a
// character device whose number every holder of its descriptor can ask for.
class FakeKernel final {
 public:
  struct Object {
    fabric::verbs::UverbsObject type;
    uint32_t handle;
    uint32_t pd;  // Of a region or a queue pair.
    fabric::verbs::MrFacts facts;
  };

  // `path`: the file; it is made where there is none.
  explicit FakeKernel(const std::string& path);
  // From the environment variable MRD_FAKE_KERNEL; null when it is not set.
  static std::unique_ptr<FakeKernel> FromEnvironment();
  ~FakeKernel();
  FakeKernel(const FakeKernel&) = delete;
  FakeKernel& operator=(const FakeKernel&) = delete;

  // A new context, with nothing in it.
  UniqueFd Open() MRD_EXCLUDES(mutex_);
  // Of a descriptor that Open returned, in whichever process; -1: it is none.
  static int ContextOf(int fd);

  // Returns its handle, which no other object has or had. A region has the keys of KeyOf.
  uint32_t Make(int context, fabric::verbs::UverbsObject type, uint32_t pd,
                fabric::verbs::MrFacts facts = {}) MRD_EXCLUDES(mutex_);
  static uint32_t KeyOf(uint32_t handle) { return handle << 8; }
  void End(uint32_t handle) MRD_EXCLUDES(mutex_);
  std::vector<Object> Of(int context) MRD_EXCLUDES(mutex_);

 private:
  struct Entry;
  struct File;

  File* const file_;
  Mutex mutex_;
};

}  // namespace mrd::fake

#endif  // MRD_TESTS_FAKE_FAKE_KERNEL_H_
