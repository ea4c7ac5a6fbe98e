// The text of the metrics for all who ask: made at most once a second, however many ask and however
// often, and by one thread at a time.
#ifndef MRD_DAEMON_HOST_METRICS_PAGE_H_
#define MRD_DAEMON_HOST_METRICS_PAGE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/mutex.h"

namespace mrd::host {

// Thread-safe.
class Page {
 public:
  using Clock = std::chrono::steady_clock;
  using Text = std::shared_ptr<const std::string>;
  using Done = std::function<void(const Text&)>;
  static constexpr std::chrono::seconds kFresh{1};

  // `render` is called without any lock held.
  explicit Page(std::function<std::string()> render);
  // Answers whoever has asked, then ends its thread.
  ~Page();

  // Not older than a second. Blocks while it is made.
  Text Get() MRD_EXCLUDES(mutex_);
  // The same for threads that must not block: `done` is called by this object's thread.
  void Ask(Done done) MRD_EXCLUDES(mutex_);

 private:
  void Run() MRD_EXCLUDES(mutex_);

  const std::function<std::string()> render_;
  Mutex mutex_;
  CondVar changed_;
  Text text_ MRD_GUARDED_BY(mutex_);
  Clock::time_point made_ MRD_GUARDED_BY(mutex_);
  bool making_ MRD_GUARDED_BY(mutex_) = false;  // By one thread; others wait for it.
  std::vector<Done> asked_ MRD_GUARDED_BY(mutex_);
  bool ending_ MRD_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_METRICS_PAGE_H_
