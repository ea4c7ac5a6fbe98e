// Answers that were handed to gRPC and have not gone out. A client that does not read would keep
// them, and what they hold, for ever: after ten seconds they are cancelled, and the oldest of them
// before that where all of them together are too large.
#ifndef MRD_DAEMON_SERVICE_ANSWERS_H_
#define MRD_DAEMON_SERVICE_ANSWERS_H_

#include <grpcpp/server_context.h>

#include <chrono>
#include <list>

#include "daemon/mutex.h"

namespace mrd::service {

// Thread-safe.
class Answers {
 private:
  struct Entry {
    grpc::ServerContext* context;
    size_t bytes;
    std::chrono::steady_clock::time_point started;
    bool cancelled;
  };

 public:
  using Ticket = std::list<Entry>::iterator;

  static constexpr std::chrono::seconds kMostWait{10};

  explicit Answers(size_t most_bytes) : most_bytes_(most_bytes) {}

  // An answer of `bytes`, which counts until it has gone out or been cancelled.
  Ticket Started(grpc::ServerContext* context, size_t bytes) {
    const Entry entry{context, bytes, std::chrono::steady_clock::now(), false};
    MutexLock lock(mutex_);
    bytes_ += bytes;
    for (auto old = entries_.begin(); bytes_ > most_bytes_ && old != entries_.end(); ++old) {
      Cancel(*old);
    }
    return entries_.insert(entries_.end(), entry);
  }

  // It has gone out, or its connection has gone. REQUIRES: the context is still there.
  void Ended(Ticket ticket) {
    MutexLock lock(mutex_);
    if (!ticket->cancelled) bytes_ -= ticket->bytes;
    entries_.erase(ticket);
  }

  // Cancels what has waited too long. Called now and then.
  void Sweep() {
    const auto now = std::chrono::steady_clock::now();
    MutexLock lock(mutex_);
    for (Entry& entry : entries_) {  // The oldest first.
      if (now - entry.started < kMostWait) break;
      Cancel(entry);
    }
  }

 private:
  void Cancel(Entry& entry) MRD_REQUIRES(mutex_) {
    if (entry.cancelled) return;
    entry.cancelled = true;
    bytes_ -= entry.bytes;
    entry.context->TryCancel();
  }

  const size_t most_bytes_;
  Mutex mutex_;
  std::list<Entry> entries_ MRD_GUARDED_BY(mutex_);
  size_t bytes_ MRD_GUARDED_BY(mutex_) = 0;  // Of those that are not cancelled.
};

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_ANSWERS_H_
