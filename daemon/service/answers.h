// Answers that were handed to gRPC and have not gone out. A client that does not read would keep
// them, and what they hold, for ever: after ten seconds they are cancelled.
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
    std::chrono::steady_clock::time_point started;
    bool cancelled;
  };

 public:
  using Ticket = std::list<Entry>::iterator;

  static constexpr std::chrono::seconds kMostWait{10};

  Ticket Started(grpc::ServerContext* context) {
    const Entry entry{context, std::chrono::steady_clock::now(), false};
    MutexLock lock(mutex_);
    return entries_.insert(entries_.end(), entry);
  }

  // It has gone out, or its connection has gone. REQUIRES: the context is still there.
  void Ended(Ticket ticket) {
    MutexLock lock(mutex_);
    entries_.erase(ticket);
  }

  // Cancels what has waited too long. Called now and then.
  void Sweep() {
    const auto now = std::chrono::steady_clock::now();
    MutexLock lock(mutex_);
    for (Entry& entry : entries_) {  // The oldest first.
      if (now - entry.started < kMostWait) break;
      if (entry.cancelled) continue;
      entry.cancelled = true;
      entry.context->TryCancel();
    }
  }

 private:
  Mutex mutex_;
  std::list<Entry> entries_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_ANSWERS_H_
