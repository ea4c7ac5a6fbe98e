// Calls whose progress somebody wants to know, by their request ids.
#ifndef MRD_CLIENT_PROGRESS_H_
#define MRD_CLIENT_PROGRESS_H_

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "client/mutex.h"
#include "mrd/v1/attach.pb.h"

namespace mrd::internal {

// Thread-safe.
class ProgressCalls final {
 public:
  // False: the call is to be cancelled.
  using Callback = std::function<bool(const v1::AttachEvent::Progress&)>;

  // A call, for as long as this lives; no callback runs any more when it has ended.
  class Watch final {
   public:
    // `cancel` is called, once, when `callback` says so. Nothing is watched without a callback.
    Watch(ProgressCalls& calls, const std::string& request_id, const Callback& callback,
          std::function<void()> cancel);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;

   private:
    ProgressCalls& calls_;
    const std::string request_id_;
  };

  void Report(const v1::AttachEvent::Progress& progress);

 private:
  struct Entry {
    Mutex mutex;  // Held while the callback runs.
    Callback callback ABSL_GUARDED_BY(mutex);
    std::function<void()> cancel ABSL_GUARDED_BY(mutex);
  };

  Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Entry>> by_request_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_PROGRESS_H_
