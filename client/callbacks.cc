#include "client/callbacks.h"

#include <chrono>
#include <deque>
#include <utility>

#include "client/library_thread.h"

namespace mrd::internal {

struct Callbacks::Queue {
  mutable Mutex mutex;
  CondVar changed;
  std::deque<std::function<void()>> waiting ABSL_GUARDED_BY(mutex);
  bool closed ABSL_GUARDED_BY(mutex) = false;
};

Callbacks::Callbacks() : queue_(std::make_shared<Queue>()) {}

Callbacks::~Callbacks() {
  Close();
  std::thread thread;
  {
    MutexLock lock(&start_mutex_);
    thread.swap(thread_);
  }
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else {
    thread.join();
  }
}

void Callbacks::Post(std::function<void()> callback) {
  MutexLock start(&start_mutex_);
  {
    MutexLock lock(&queue_->mutex);
    if (queue_->closed) return;  // Nor is a thread started after it.
    queue_->waiting.push_back(std::move(callback));
    queue_->changed.NotifyAll();
  }
  if (!thread_.joinable()) {
    thread_ = StartThread([queue = queue_] { Run(queue); });
  }
}

void Callbacks::Close() {
  std::deque<std::function<void()>> dropped;  // Destroyed without the lock.
  MutexLock lock(&queue_->mutex);
  queue_->closed = true;
  dropped.swap(queue_->waiting);
  queue_->changed.NotifyAll();
}

size_t Callbacks::waiting() const {
  MutexLock lock(&queue_->mutex);
  return queue_->waiting.size();
}

void Callbacks::Run(const std::shared_ptr<Queue>& queue) {
  for (;;) {
    std::function<void()> next;
    {
      MutexLock lock(&queue->mutex);
      while (!queue->closed && queue->waiting.empty()) {
        queue->changed.WaitUntil(&queue->mutex,
                                 std::chrono::steady_clock::now() + std::chrono::hours(1));
      }
      if (queue->closed) return;
      next = std::move(queue->waiting.front());
      queue->waiting.pop_front();
    }
    next();
  }
}

}  // namespace mrd::internal
