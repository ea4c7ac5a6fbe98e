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
    queue->second.push_back(std::move(fd));
    start = first;
    room = queue->second.size() < kMostWaiting;
  }
  if (start) std::thread(Run, state_, uid).detach();
  return room;
}

bool Disposer::Stuck(uint32_t uid) {
  MutexLock lock(state_->mutex);
  const auto queue = state_->queues.find(uid);
  return queue != state_->queues.end() && queue->second.size() >= kMostWaiting;
}

void Disposer::Run(std::shared_ptr<State> state, uint32_t uid) {
  for (;;) {
    UniqueFd next;
    {
      MutexLock lock(state->mutex);
      const auto queue = state->queues.find(uid);
      if (queue->second.empty()) {
        state->queues.erase(queue);
        return;
      }
      next = std::move(queue->second.front());
      queue->second.pop_front();
    }
  }  // `next` is closed here, with no lock held.
}

}  // namespace mrd::memory
