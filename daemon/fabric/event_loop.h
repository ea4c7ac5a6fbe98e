// One thread that waits for file descriptors, deadlines and posted functions, and runs what belongs
// to them. State that only its callbacks touch needs no lock.
//
// Thread safety: Post, RunSync and InLoop from any thread; everything else from the loop's own
// thread only (from within a callback or a posted function). Callbacks must not throw and, since
// they hold up all others, must not block for long.
#ifndef MRD_DAEMON_FABRIC_EVENT_LOOP_H_
#define MRD_DAEMON_FABRIC_EVENT_LOOP_H_

#include <atomic>
#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "daemon/mutex.h"

namespace mrd::fabric {

class EventLoop {
 public:
  using Function = absl::AnyInvocable<void()>;
  using Deadline = std::chrono::steady_clock::time_point;
  using WatchId = uint64_t;  // Never used again; 0: none.
  struct TimerId {
    Deadline at;
    uint64_t number = 0;  // 0: no timer.
    auto operator<=>(const TimerId&) const = default;
  };

  // Starts the thread; `name` (at most 15 bytes) is what ps and gdb show. Ends the process when the
  // kernel gives no epoll or eventfd: there is no daemon without.
  explicit EventLoop(const std::string& name);
  // Runs what is posted, then joins the thread; timers that are not due are dropped. Not from the
  // loop's own thread.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  bool InLoop() const { return std::this_thread::get_id() == thread_.get_id(); }

  // Functions run in the order of the calls.
  void Post(Function function) MRD_EXCLUDES(mutex_);

  // Runs `function` in the loop's thread and waits for its end; at once when called from there.
  void RunSync(absl::FunctionRef<void()> function) MRD_EXCLUDES(mutex_);

  // Calls `readable` whenever `fd` is readable, has hung up or failed (level-triggered). The fd
  // stays the caller's, and stays open until Unwatch. A callback may unwatch any fd, its own
  // included; afterwards it is not called again. 0: the kernel does not take it (no memory, or
  // fs.epoll.max_user_watches), which is logged; what it is for cannot go on.
  WatchId Watch(int fd, Function readable);
  void Unwatch(WatchId id);

  // Calls `function` once, at `at` or soon after. Deadline::max() is never.
  TimerId At(Deadline at, Function function);
  // Nothing happens when it has run, or when `id` is no timer.
  void Cancel(const TimerId& id);

 private:
  struct Watched {
    int fd;
    Function readable;
  };

  void Run();
  void RunPosted() MRD_EXCLUDES(mutex_);
  void RunTimers();
  int TimeoutMs() const;

  const int epoll_;
  const int wake_;
  Mutex mutex_;
  std::vector<Function> posted_ MRD_GUARDED_BY(mutex_);
  bool stop_ MRD_GUARDED_BY(mutex_) = false;

  // The loop thread's own.
  std::unordered_map<WatchId, std::shared_ptr<Watched>> watches_;
  WatchId next_watch_ = 1;
  std::map<TimerId, Function> timers_;
  uint64_t next_timer_ = 1;

  std::thread thread_;  // Last: it uses the others from its first moment.
};

}  // namespace mrd::fabric

#endif  // MRD_DAEMON_FABRIC_EVENT_LOOP_H_
