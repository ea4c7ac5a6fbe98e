// A few threads for verbs that block: rdma_connect on siw waits for TCP's handshake (two minutes
// where the peer does not answer), rdma_destroy_id on iWARP for the peer's answer (ten seconds).
// The event loop must not.
#ifndef MRD_DAEMON_FABRIC_VERBS_WORKERS_H_
#define MRD_DAEMON_FABRIC_VERBS_WORKERS_H_

#include <deque>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "daemon/mutex.h"

namespace mrd::fabric::verbs {

// Thread safety: any thread.
class Workers {
 public:
  using Function = absl::AnyInvocable<void()>;

  // Threads are started as they are needed, `max_threads` at most; `name` has at most 15 bytes.
  Workers(std::string name, size_t max_threads)
      : name_(std::move(name)), max_threads_(max_threads) {}
  // Runs all that was posted, and waits for its end.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void Post(Function function) MRD_EXCLUDES(mutex_);

 private:
  void Run() MRD_EXCLUDES(mutex_);

  const std::string name_;
  const size_t max_threads_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Function> posted_ MRD_GUARDED_BY(mutex_);
  size_t idle_ MRD_GUARDED_BY(mutex_) = 0;
  bool stop_ MRD_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_WORKERS_H_
