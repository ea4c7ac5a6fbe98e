// Closes descriptors that were refused, and connections in which some wait. close(2) on a file of a
// FUSE server that does not answer blocks for ever, so it happens on a thread that nobody waits
// for: one for each uid that has some to close, up to a bound, and none in quiet times.
#ifndef MRD_DAEMON_MEMORY_DISPOSER_H_
#define MRD_DAEMON_MEMORY_DISPOSER_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>

#include "daemon/mutex.h"
#include "daemon/unique_fd.h"

namespace mrd::memory {

// Thread-safe. A copy is the same disposer.
class Disposer {
 public:
  using Clock = std::chrono::steady_clock::time_point (*)();

  // How many of a uid's may wait where a close has taken a second; eight times as many before.
  static constexpr size_t kMostWaiting = 1024;

  // What may take as long as a close.
  using Before = std::function<void(int fd)>;

  // `clock` is called from any thread, also after the end of the disposer.
  explicit Disposer(Clock clock = &std::chrono::steady_clock::now)
      : state_(std::make_shared<State>(clock)) {}

  // Closes `fd` soon, after `before` on the same thread. False: the uid is stuck, and should send
  // no more; this one is taken all the same.
  bool Close(uint32_t uid, UniqueFd fd, Before before = {});

  // Whether more of this uid's descriptors wait to be closed than may.
  bool Stuck(uint32_t uid);

 private:
  static constexpr std::chrono::seconds kHangs{1};
  // Threads at one time whose close does not hang. One that does keeps its thread, up to a bound:
  // as many users as there are in a pod's range must not stop everybody else's.
  static constexpr int kMostThreads = 64;
  static constexpr int kMostThreadsInAll = 1024;
  static constexpr std::chrono::milliseconds kLingers{200};
  struct Item {
    UniqueFd fd;
    Before before = {};
  };
  struct Queue {
    explicit Queue(std::chrono::steady_clock::time_point now) : progress(now) {}
    bool Stuck(std::chrono::steady_clock::time_point now) const;
    bool Hangs(std::chrono::steady_clock::time_point now) const { return now - progress > kHangs; }
    bool running = false;  // A thread is at it.
    std::deque<Item> waiting;
    std::chrono::steady_clock::time_point progress;
  };
  // Outlives the disposer where a close hangs.
  struct State {
    explicit State(Clock the_clock) : clock(the_clock) {}
    const Clock clock;
    Mutex mutex;
    std::unordered_map<uint32_t, Queue> queues MRD_GUARDED_BY(mutex);
    int threads MRD_GUARDED_BY(mutex) = 0;
    // Threads that wait a moment for more, and that nobody has called: a thread for each descriptor
    // would cost more than its close.
    int idle MRD_GUARDED_BY(mutex) = 0;
    CondVar called;

    bool MayStart() const MRD_REQUIRES(mutex);
  };
  static void Run(std::shared_ptr<State> state);

  const std::shared_ptr<State> state_;
};

}  // namespace mrd::memory

#endif  // MRD_DAEMON_MEMORY_DISPOSER_H_
