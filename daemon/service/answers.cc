#include "daemon/service/answers.h"

namespace mrd::service {

Answers::Queue& Answers::QueueOf(std::optional<uint32_t> uid) {
  return uid ? by_uid_[*uid] : without_session_;
}

Answers::Ticket Answers::Started(Answer* answer, std::optional<uint32_t> uid, size_t bytes,
                                 Clock::time_point now) {
  Ticket ticket;
  {
    MutexLock lock(mutex_);
    Queue& queue = QueueOf(uid);
    ticket = queue.entries.insert(queue.entries.end(), {answer, uid, bytes, now});
    queue.bytes += bytes;
    bytes_ += bytes;
  }
  // Not under the lock: gRPC may send something right away.
  while (Answer* const large = TakeTooLarge()) large->Cancel();
  return ticket;
}

void Answers::Ended(Ticket ticket) {
  MutexLock lock(mutex_);
  if (ticket->cancelled) {
    cancelled_.erase(ticket);
    return;
  }
  Queue& queue = QueueOf(ticket->uid);
  queue.bytes -= ticket->bytes;
  bytes_ -= ticket->bytes;
  queue.entries.erase(ticket);
}

void Answers::Sweep(Clock::time_point now) {
  while (Answer* const old = TakeTooOld(now)) old->Cancel();
  MutexLock lock(mutex_);
  std::erase_if(by_uid_, [](const auto& each) { return each.second.entries.empty(); });
}

Answer* Answers::TakeOldest(Queue& queue) {
  Entry& entry = queue.entries.front();
  entry.cancelled = true;
  queue.bytes -= entry.bytes;
  bytes_ -= entry.bytes;
  entry.answer->Hold();
  cancelled_.splice(cancelled_.end(), queue.entries, queue.entries.begin());
  return entry.answer;
}

Answer* Answers::TakeTooLarge() {
  MutexLock lock(mutex_);
  if (bytes_ <= most_bytes_) return nullptr;
  Queue* largest = &without_session_;
  for (auto& [uid, queue] : by_uid_) {
    if (queue.bytes > largest->bytes) largest = &queue;
  }
  return TakeOldest(*largest);
}

Answer* Answers::TakeTooOld(Clock::time_point now) {
  MutexLock lock(mutex_);
  const auto too_old = [now](const Queue& queue) {
    return !queue.entries.empty() && now - queue.entries.front().started >= kMostWait;
  };
  if (too_old(without_session_)) return TakeOldest(without_session_);
  for (auto& [uid, queue] : by_uid_) {
    if (too_old(queue)) return TakeOldest(queue);
  }
  return nullptr;
}

}  // namespace mrd::service
