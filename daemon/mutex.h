// std::mutex with the annotations that clang's -Wthread-safety checks.
//
// Order of locks, over all of the daemon. A thread takes them from top to bottom only, and holds
// none of them across a verbs call, a mapping, or anything else that may sleep for long:
//
//   attach socket   one packet of one attach connection: received and recorded in one step (ipc)
//   Broker          the table of sessions
//   Session         all that one session holds
//   PolicyFile, and the setting of a policy (books.h): held while the operator's file is read and
//                   each session's rule is found; no call waits for them
//   DomainSet       and within it DeviceWatch
//   Ledger          its devices; held while the store is told, before anything is made on one
//   Books, MappingCache, AddressWindow, Mapping, Registrar, DeviceCatalog, DeviceWatch, Disposer,
//   NamedDomains, LeaseClock, DrainSwitch, Slots (which may make the ledger's file larger by a
//   piece), SessionLink, FdStore, ServiceManager, Pinning, EventLoop, Workers, Endpoints, Answers,
//   SparseWarnings, SessionLog, CallTable, Page, Textfile, the table of guarded connections and
//   within it each guard, an attach connection's lock for sending and within it LostEvents, and
//   each fabric's own: leaves
#ifndef MRD_DAEMON_MUTEX_H_
#define MRD_DAEMON_MUTEX_H_

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define MRD_ANNOTATE(x) __attribute__((x))
#else
#define MRD_ANNOTATE(x)
#endif

#define MRD_GUARDED_BY(mutex) MRD_ANNOTATE(guarded_by(mutex))
#define MRD_REQUIRES(...) MRD_ANNOTATE(requires_capability(__VA_ARGS__))
#define MRD_EXCLUDES(...) MRD_ANNOTATE(locks_excluded(__VA_ARGS__))

namespace mrd {

class MRD_ANNOTATE(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() MRD_ANNOTATE(acquire_capability()) { mutex_.lock(); }
  void Unlock() MRD_ANNOTATE(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class MRD_ANNOTATE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) MRD_ANNOTATE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.Lock();
  }
  ~MutexLock() MRD_ANNOTATE(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits need a loop around them: wake-ups may be spurious.
class CondVar {
 public:
  void Wait(Mutex& mutex) MRD_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // False: `deadline` has passed.
  template <typename TimePoint>
  bool WaitUntil(Mutex& mutex, TimePoint deadline) MRD_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const auto status = condition_.wait_until(lock, deadline);
    lock.release();
    return status == std::cv_status::no_timeout;
  }

  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace mrd

#endif  // MRD_DAEMON_MUTEX_H_
