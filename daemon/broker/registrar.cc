#include "daemon/broker/registrar.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

// Work up to this many bytes is light: a millisecond or so of pinning.
constexpr uint64_t kLight = 4 << 20;
// Every so many picks the oldest goes first whatever its weight, so that light work cannot starve
// heavy work.
constexpr uint64_t kFairEvery = 4;

}  // namespace

Registrar::Registrar(const Limits& limits, size_t threads) : limits_(limits) {
  if (threads == 0) threads = std::max(4u, std::thread::hardware_concurrency());
  most_a_session_ = std::max<size_t>(1, threads / 2);
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
}

Registrar::~Registrar() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void Registrar::Enqueue(uint64_t session_id, uint64_t weight, Task task) {
  Share& share = shares_[session_id];
  auto& queue = weight <= kLight ? share.light : share.heavy;
  queue.push_back({weight, sequence_++, std::move(task)});
  ++queued_;
  changed_.NotifyOne();
}

absl::Status Registrar::Submit(uint64_t session_id, uint64_t weight, Task task) {
  MutexLock lock(mutex_);
  const auto share = shares_.find(session_id);
  const size_t own = share == shares_.end() ? 0 : share->second.waiting();
  const bool own_full = own >= limits_.queued;
  if (own_full || queued_ >= limits_.queued_in_all) {
    return MakeError(
        v1::BUSY, absl::StrCat(own_full ? own : queued_, " registrations wait already"),
        {.limit_name = own_full ? "queued registrations of the session" : "queued registrations",
         .limit = own_full ? limits_.queued : limits_.queued_in_all,
         .used = own_full ? own : queued_,
         .advice = "Try again after a pause"});
  }
  Enqueue(session_id, weight, std::move(task));
  return absl::OkStatus();
}

void Registrar::SubmitCleanup(uint64_t session_id, Task task) {
  MutexLock lock(mutex_);
  Enqueue(session_id, 0, std::move(task));
}

bool Registrar::RunHere(Task& task) {
  const bool free = inline_slots_.fetch_sub(1) > 0;
  if (free) task();
  inline_slots_.fetch_add(1);
  return free;
}

absl::Status Registrar::RunSmall(uint64_t session_id, Task task) {
  return RunHere(task) ? absl::OkStatus() : Submit(session_id, 0, std::move(task));
}

void Registrar::RunSmallCleanup(uint64_t session_id, Task task) {
  if (!RunHere(task)) SubmitCleanup(session_id, std::move(task));
}

size_t Registrar::queued() const {
  MutexLock lock(mutex_);
  return queued_;
}

bool Registrar::NextLocked(uint64_t* session_id, Item* item) {
  const bool oldest_first = picks_ % kFairEvery == 0;
  Shares::iterator best = shares_.end();
  std::deque<Item>* best_queue = nullptr;
  for (auto share = shares_.begin(); share != shares_.end(); ++share) {
    if (share->second.running >= most_a_session_) continue;
    for (auto* queue : {&share->second.light, &share->second.heavy}) {
      if (queue->empty()) continue;
      const bool light = queue == &share->second.light;
      const bool best_light = best_queue && best_queue == &best->second.light;
      const bool older = !best_queue || queue->front().sequence < best_queue->front().sequence;
      if (!best_queue || (oldest_first || light == best_light ? older : light)) {
        best = share;
        best_queue = queue;
      }
    }
  }
  if (!best_queue) return false;
  ++picks_;
  *session_id = best->first;
  *item = std::move(best_queue->front());
  best_queue->pop_front();
  ++best->second.running;
  --queued_;
  return true;
}

void Registrar::Run() {
  mutex_.Lock();
  for (;;) {
    uint64_t session_id = 0;
    Item item;
    if (NextLocked(&session_id, &item)) {
      mutex_.Unlock();
      item.task();
      item.task = nullptr;  // What it held may take long to go: not under the lock.
      mutex_.Lock();
      const auto share = shares_.find(session_id);
      if (--share->second.running == 0 && share->second.waiting() == 0) {
        shares_.erase(share);
      } else {
        changed_.NotifyOne();  // The session may have one more now.
      }
    } else if (ending_ && queued_ == 0) {
      break;
    } else {
      changed_.Wait(mutex_);
    }
  }
  mutex_.Unlock();
  changed_.NotifyAll();
}

}  // namespace mrd::broker
