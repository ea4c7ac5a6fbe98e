// What a hostile client can do to a descriptor of its own: a system call on it that waits for a
// page which never comes holds a lock of the kernel's all the while. A write(2) from that page
// holds the inode's, an epoll_wait(2) into it the epoll's.
#ifndef MRD_TESTS_MEMORY_STALLED_CALL_H_
#define MRD_TESTS_MEMORY_STALLED_CALL_H_

#include <functional>
#include <thread>

#include "daemon/unique_fd.h"

namespace mrd::memory {

// By userfaultfd(2); needs CAP_SYS_PTRACE for a fault in the kernel.
class StalledCall {
 public:
  // `call` is made on a thread; returns once it waits for the page.
  explicit StalledCall(std::function<void(void* page)> call);
  ~StalledCall();
  StalledCall(const StalledCall&) = delete;
  StalledCall& operator=(const StalledCall&) = delete;

  // False: this system does not let it.
  bool waits() const { return waits_; }

 private:
  UniqueFd faults_;
  void* page_;
  std::thread caller_;
  bool waits_ = false;
};

}  // namespace mrd::memory

#endif  // MRD_TESTS_MEMORY_STALLED_CALL_H_
