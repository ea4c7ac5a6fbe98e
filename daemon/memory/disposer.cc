#include "daemon/memory/disposer.h"

#include <algorithm>
#include <system_error>
#include <thread>
#include <utility>

namespace mrd::memory {

bool Disposer::Close(uint32_t uid, UniqueFd fd, Before before) {
  bool start;
  bool room;
  {
    MutexLock lock(state_->mutex);
    const auto now = state_->clock();
    Queue& queue = state_->queues.try_emplace(uid, now).first->second;
    queue.waiting.push_back({std::move(fd), std::move(before)});
    room = !queue.Stuck(now);
    const bool call = !queue.running && state_->idle > 0;
    if (call) {
      --state_->idle;
      state_->called.NotifyOne();
    }
    start = !queue.running && !call && state_->MayStart();
    if (start) ++state_->threads;
  }
  if (!start) return room;
  try {
    std::thread(Run, state_).detach();
  } catch (const std::system_error&) {
    // This host has no thread left for it: the next one tries again.
    MutexLock lock(state_->mutex);
    --state_->threads;
  }
  return room;
}

bool Disposer::Stuck(uint32_t uid) {
  MutexLock lock(state_->mutex);
  const auto queue = state_->queues.find(uid);
  return queue != state_->queues.end() && queue->second.Stuck(state_->clock());
}

bool Disposer::State::MayStart() const {
  if (threads < kMostThreads) return true;
  if (threads >= kMostThreadsInAll) return false;
  const auto now = clock();
  const auto hang = std::count_if(queues.begin(), queues.end(), [now](const auto& each) {
    return each.second.running && each.second.Hangs(now);
  });
  return threads - hang < kMostThreads;
}

bool Disposer::Queue::Stuck(std::chrono::steady_clock::time_point now) const {
  // A thread that merely lacks a processor for a while makes no honest session pay.
  return waiting.size() >= (Hangs(now) ? kMostWaiting : 8 * kMostWaiting);
}

void Disposer::Run(std::shared_ptr<State> state) {
  for (;;) {
    Queue* queue = nullptr;
    uint32_t uid = 0;
    {
      MutexLock lock(state->mutex);
      const auto find = [&]() MRD_REQUIRES(state->mutex) {
        for (auto& [each, waiting] : state->queues) {
          if (waiting.running) continue;
          uid = each;
          queue = &waiting;
        }
        return queue != nullptr;
      };
      if (!find()) {
        ++state->idle;
        const auto until = std::chrono::steady_clock::now() + kLingers;
        while (!find() && state->called.WaitUntil(state->mutex, until)) {
        }
        if (!queue && !find()) {
          // Where another thread was quicker than this one, which was called, it is counted no
          // more; then one too few is, and the next descriptor starts a thread.
          if (state->idle > 0) --state->idle;
          --state->threads;
          return;
        }
      }
      queue->running = true;  // Nobody else takes it out of the table.
    }
    for (bool more = true; more;) {
      Item next;
      {
        MutexLock lock(state->mutex);
        more = !queue->waiting.empty();
        if (more) {
          next = std::move(queue->waiting.front());
          queue->waiting.pop_front();
          queue->progress = state->clock();
        } else {
          state->queues.erase(uid);
        }
      }
      if (next.before) next.before(next.fd.get());
    }  // `next` is closed here, with no lock held.
  }
}

}  // namespace mrd::memory
