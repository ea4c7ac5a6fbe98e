// gRPC aborts where something is put into a completion queue that shuts down.
#ifndef MRD_DAEMON_SERVICE_QUEUE_GATE_H_
#define MRD_DAEMON_SERVICE_QUEUE_GATE_H_

#include <mutex>
#include <shared_mutex>

namespace mrd::service {

// Thread-safe.
class QueueGate {
 public:
  // Runs `put`, which puts something into the queue, unless the gate is shut: then false.
  template <typename Put>
  bool Pass(Put put) {
    const std::shared_lock lock(mutex_);
    if (!shut_) put();
    return !shut_;
  }

  // Nothing passes from now on. REQUIRES: the queue is shut down after it.
  void Shut() {
    const std::unique_lock lock(mutex_);
    shut_ = true;
  }

 private:
  std::shared_mutex mutex_;
  bool shut_ = false;  // Guarded by mutex_.
};

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_QUEUE_GATE_H_
