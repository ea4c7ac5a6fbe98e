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

Registrar::Registrar(const Limits& limits, size_t threads, Observer& observer)
    : limits_(limits), observer_(observer) {
  if (threads == 0) threads = std::max(4u, std::thread::hardware_concurrency());
  most_a_session_ = std::max<size_t>(1, threads / 2);
  most_a_uid_ = std::max<size_t>(1, threads - 1);
  thread_count_ = threads + 1;
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(/*apart=*/false); });
  threads_.emplace_back([this] { Run(/*apart=*/true); });
}

Registrar::~Registrar() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  ends_changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void Registrar::Enqueue(const Owner& owner, uint64_t weight, Task task) {
  Share& share = shares_[{owner.session_id, owner.ends}];
  share.owner = owner;
  auto& queue = weight <= kLight ? share.light : share.heavy;
  queue.push_back({weight, sequence_++, std::chrono::steady_clock::now(), std::move(task)});
  ++by_uid_[owner.uid].waiting;
  ++queued_;
  changed_.NotifyOne();
  if (owner.ends) ends_changed_.NotifyOne();
}

absl::Status Registrar::CheckRoomLocked(const Owner& owner) const {
  const auto share = shares_.find({owner.session_id, owner.ends});
  const auto uid = by_uid_.find(owner.uid);
  const struct {
    size_t used;
    size_t limit;
    const char* name;
  } queues[] = {
      {share == shares_.end() ? 0 : share->second.waiting(), limits_.queued,
       "queued registrations of the session"},
      {uid == by_uid_.end() ? 0 : uid->second.waiting, limits_.queued_of_uid,
       "queued registrations of the uid"},
      {queued_, limits_.queued_in_all, "queued registrations"},
  };
  for (const auto& queue : queues) {
    if (queue.used < queue.limit) continue;
    return MakeError(v1::BUSY,
                     absl::StrCat(queue.used, " registrations wait already, and the limit of ",
                                  queue.name, " is ", queue.limit),
                     {.limit_name = queue.name,
                      .limit = queue.limit,
                      .used = queue.used,
                      .advice = "Try again after a pause"});
  }
  return absl::OkStatus();
}

absl::Status Registrar::Submit(const Owner& owner, uint64_t weight, Task task) {
  MutexLock lock(mutex_);
  if (auto room = CheckRoomLocked(owner); !room.ok()) return room;
  Enqueue(owner, weight, std::move(task));
  return absl::OkStatus();
}

void Registrar::SubmitCleanup(const Owner& owner, Task task) {
  MutexLock lock(mutex_);
  Enqueue(owner, 0, std::move(task));
}

bool Registrar::RunHere(Task& task) {
  const bool free = inline_slots_.fetch_sub(1) > 0;
  if (free) task();
  inline_slots_.fetch_add(1);
  return free;
}

absl::Status Registrar::RunSmall(const Owner& owner, Task task) {
  return RunHere(task) ? absl::OkStatus() : Submit(owner, 0, std::move(task));
}

void Registrar::RunSmallCleanup(const Owner& owner, Task task) {
  if (!RunHere(task)) SubmitCleanup(owner, std::move(task));
}

size_t Registrar::queued() const {
  MutexLock lock(mutex_);
  return queued_;
}

Registrar::Load Registrar::load() const {
  MutexLock lock(mutex_);
  return {queued_, running_, thread_count_};
}

bool Registrar::MayRunLocked(const Share& share, bool apart) const {
  if (apart) return share.owner.ends;
  return share.running < most_a_session_ && by_uid_.at(share.owner.uid).running < most_a_uid_;
}

bool Registrar::NextLocked(bool apart, Owner* owner, Item* item) {
  const bool oldest_first = picks_ % kFairEvery == 0;
  Shares::iterator best = shares_.end();
  std::deque<Item>* best_queue = nullptr;
  for (auto share = shares_.begin(); share != shares_.end(); ++share) {
    if (!MayRunLocked(share->second, apart)) continue;
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
  *owner = best->second.owner;
  *item = std::move(best_queue->front());
  best_queue->pop_front();
  UidShare& of_uid = by_uid_.at(owner->uid);
  --of_uid.waiting;
  ++(apart ? best->second.running_apart : best->second.running);
  ++(apart ? of_uid.running_apart : of_uid.running);
  ++running_;
  --queued_;
  return true;
}

void Registrar::EndedLocked(bool apart, const Owner& owner) {
  --running_;
  const auto found = shares_.find({owner.session_id, owner.ends});
  Share& share = found->second;
  --(apart ? share.running_apart : share.running);
  if (share.running + share.running_apart + share.waiting() == 0) shares_.erase(found);
  const auto of_uid = by_uid_.find(owner.uid);
  UidShare& uid = of_uid->second;
  --(apart ? uid.running_apart : uid.running);
  if (uid.running + uid.running_apart + uid.waiting == 0) by_uid_.erase(of_uid);
  changed_.NotifyOne();  // One more of theirs may run now.
}

void Registrar::Run(bool apart) {
  mutex_.Lock();
  for (;;) {
    Owner owner;
    Item item;
    if (NextLocked(apart, &owner, &item)) {
      mutex_.Unlock();
      observer_.TaskWaited(std::chrono::steady_clock::now() - item.queued);
      item.task();
      item.task = nullptr;  // What it held may take long to go: not under the lock.
      mutex_.Lock();
      EndedLocked(apart, owner);
    } else if (ending_ && queued_ == 0) {
      break;
    } else {
      (apart ? ends_changed_ : changed_).Wait(mutex_);
    }
  }
  mutex_.Unlock();
  changed_.NotifyAll();
  ends_changed_.NotifyAll();
}

}  // namespace mrd::broker
