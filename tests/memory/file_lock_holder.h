// What a hostile client can do to a file of its own: a write(2) to it whose source is a page that
// never comes holds the inode's lock all the while.
#ifndef MRD_TESTS_MEMORY_FILE_LOCK_HOLDER_H_
#define MRD_TESTS_MEMORY_FILE_LOCK_HOLDER_H_

#include <thread>

#include "daemon/unique_fd.h"

namespace mrd::memory {

// By userfaultfd(2); needs CAP_SYS_PTRACE for a fault in the kernel.
class FileLockHolder {
 public:
  // Returns once the lock is held.
  explicit FileLockHolder(int fd);
  ~FileLockHolder();
  FileLockHolder(const FileLockHolder&) = delete;
  FileLockHolder& operator=(const FileLockHolder&) = delete;

  // False: this system does not let it.
  bool holds() const { return holds_; }

 private:
  UniqueFd faults_;
  void* page_;
  std::thread writer_;
  bool holds_ = false;
};

}  // namespace mrd::memory

#endif  // MRD_TESTS_MEMORY_FILE_LOCK_HOLDER_H_
