#include "client/progress.h"

#include <utility>

namespace mrd::internal {

ProgressCalls::Watch::Watch(ProgressCalls& calls, const std::string& request_id,
                            const Callback& callback, std::function<void()> cancel)
    : calls_(calls), request_id_(callback ? request_id : "") {
  if (!callback) return;
  auto entry = std::make_shared<Entry>();
  {
    MutexLock lock(&entry->mutex);
    entry->callback = callback;
    entry->cancel = std::move(cancel);
  }
  MutexLock lock(&calls_.mutex_);
  calls_.by_request_[request_id_] = std::move(entry);
}

ProgressCalls::Watch::~Watch() {
  if (request_id_.empty()) return;
  std::shared_ptr<Entry> entry;
  {
    MutexLock lock(&calls_.mutex_);
    const auto found = calls_.by_request_.find(request_id_);
    entry = std::move(found->second);
    calls_.by_request_.erase(found);
  }
  MutexLock lock(&entry->mutex);  // Waits for one that runs.
  entry->callback = nullptr;
}

void ProgressCalls::Report(const v1::AttachEvent::Progress& progress) {
  std::shared_ptr<Entry> entry;
  {
    MutexLock lock(&mutex_);
    const auto found = by_request_.find(progress.request_id());
    if (found == by_request_.end()) return;
    entry = found->second;
  }
  MutexLock lock(&entry->mutex);
  if (!entry->callback || entry->callback(progress)) return;
  entry->callback = nullptr;
  entry->cancel();
}

}  // namespace mrd::internal
