// The fake kernel's uevents: a queue with a descriptor, that can overflow.
#ifndef MRD_TESTS_FAKE_FAKE_UEVENTS_H_
#define MRD_TESTS_FAKE_FAKE_UEVENTS_H_

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <deque>
#include <string>
#include <utility>

#include "daemon/fabric/verbs/api.h"
#include "daemon/mutex.h"

namespace mrd::fake {

// Thread safety: any thread.
class FakeUevents {
 public:
  FakeUevents() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)) {}
  ~FakeUevents() { close(fd_); }
  FakeUevents(const FakeUevents&) = delete;
  FakeUevents& operator=(const FakeUevents&) = delete;

  fabric::verbs::Result<int> Open() MRD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return {fd_, open_error_};
  }
  // 0: they go well.
  void FailOpen(int error) MRD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    open_error_ = error;
  }
  void FailReads(int error) MRD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    read_error_ = error;
  }
  int reads() MRD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return reads_;
  }

  // Those that follow are lost, and the reader is told so once.
  void Lose() MRD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    losing_ = true;
  }

  void Push(const std::string& action, const std::string& name) MRD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (losing_ && overflowed_) return;
    if (losing_) overflowed_ = true;
    queue_.push_back(losing_ ? fabric::verbs::Result<fabric::verbs::Uevent>{{}, ENOBUFS}
                             : fabric::verbs::Result<fabric::verbs::Uevent>{{action, name}, 0});
    eventfd_write(fd_, 1);
  }

  fabric::verbs::Result<fabric::verbs::Uevent> Read() MRD_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ++reads_;
    if (read_error_ != 0) return {{}, read_error_};
    if (queue_.empty()) return {{}, EAGAIN};
    auto event = std::move(queue_.front());
    queue_.pop_front();
    eventfd_t one;
    eventfd_read(fd_, &one);
    if (event.error == ENOBUFS) losing_ = overflowed_ = false;
    return event;
  }

 private:
  const int fd_;
  Mutex mutex_;
  int open_error_ MRD_GUARDED_BY(mutex_) = 0;
  int read_error_ MRD_GUARDED_BY(mutex_) = 0;
  int reads_ MRD_GUARDED_BY(mutex_) = 0;
  bool losing_ MRD_GUARDED_BY(mutex_) = false;
  bool overflowed_ MRD_GUARDED_BY(mutex_) = false;
  std::deque<fabric::verbs::Result<fabric::verbs::Uevent>> queue_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::fake

#endif  // MRD_TESTS_FAKE_FAKE_UEVENTS_H_
