// The thread on which a session calls its user back: one callback at a time, in the order in which
// they were posted. It is not the one that keeps the session, so that a callback may take its time,
// and make calls that wait for the daemon to come back.
#ifndef MRD_CLIENT_CALLBACKS_H_
#define MRD_CLIENT_CALLBACKS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "client/mutex.h"

namespace mrd::internal {

// Thread-safe, except construction and destruction. The thread starts with the first callback.
class Callbacks final {
 public:
  Callbacks();
  // As Close(), and waits for a callback that runs; not where it is the callback that destroys
  // this. REQUIRES: not a forked child.
  ~Callbacks();
  Callbacks(const Callbacks&) = delete;
  Callbacks& operator=(const Callbacks&) = delete;

  // Runs it, unless Close() is first. It must own what it uses.
  void Post(std::function<void()> callback);

  // What has not run is dropped. One that runs goes on.
  void Close();

  // Callbacks that have not begun.
  size_t waiting() const;

 private:
  struct Queue;
  static void Run(const std::shared_ptr<Queue>& queue);

  const std::shared_ptr<Queue> queue_;  // The thread's too: a callback may destroy this.
  Mutex start_mutex_;
  std::thread thread_ ABSL_GUARDED_BY(start_mutex_);
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_CALLBACKS_H_
