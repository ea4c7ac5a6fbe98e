#include "daemon/memory/disposer.h"

#include <thread>
#include <utility>

namespace mrd::memory {

bool Disposer::Close(uint32_t uid, UniqueFd fd) {
  bool start = false;
  bool room = true;
  {
    MutexLock lock(state_->mutex);
    auto [queue, first] = state_->queues.try_emplace(uid);
    queue->second.waiting.push_back(std::move(fd));
    start = first;
    room = !queue->second.Stuck();
  }
  if (start) std::thread(Run, state_, uid).detach();
  return room;
}

bool Disposer::Stuck(uint32_t uid) {
  MutexLock lock(state_->mutex);
  const auto queue = state_->queues.find(uid);
  return queue != state_->queues.end() && queue->second.Stuck();
}

bool Disposer::Queue::Stuck() const {
  // A thread that merely lacks a processor for a while makes no honest session pay.
  const bool hangs = std::chrono::steady_clock::now() - progress > kHangs;
  return waiting.size() >= (hangs ? kMostWaiting : 8 * kMostWaiting);
}

void Disposer::Run(std::shared_ptr<State> state, uint32_t uid) {
  for (;;) {
    UniqueFd next;
    {
      MutexLock lock(state->mutex);
      const auto queue = state->queues.find(uid);
      if (queue->second.waiting.empty()) {
        state->queues.erase(queue);
        return;
      }
      next = std::move(queue->second.waiting.front());
      queue->second.waiting.pop_front();
      queue->second.progress = std::chrono::steady_clock::now();
    }
  }  // `next` is closed here, with no lock held.
}

}  // namespace mrd::memory
