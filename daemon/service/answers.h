// Answers that were handed to gRPC and have not gone out. A client that does not read would keep
// them, and what they hold, for ever: after ten seconds they are cancelled, and before that where
// all of them together are too large, of the user that has the most.
#ifndef MRD_DAEMON_SERVICE_ANSWERS_H_
#define MRD_DAEMON_SERVICE_ANSWERS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

#include "daemon/mutex.h"

namespace mrd::service {

// A call that has been answered.
class Answer {
 public:
  virtual ~Answer() = default;
  // Keeps it until Cancel. REQUIRES: it has not ended.
  virtual void Hold() = 0;
  // Cancels it where it has not ended meanwhile, and lets go of it.
  virtual void Cancel() = 0;
};

// Thread-safe.
class Answers {
 private:
  struct Entry {
    Answer* answer;
    std::optional<uint32_t> uid;  // None: of a call without a session.
    size_t bytes;
    std::chrono::steady_clock::time_point started;
    bool cancelled = false;
  };

 public:
  using Clock = std::chrono::steady_clock;
  using Ticket = std::list<Entry>::iterator;

  static constexpr std::chrono::seconds kMostWait{10};

  explicit Answers(size_t most_bytes) : most_bytes_(most_bytes) {}

  // An answer that keeps `bytes` until it has gone out or been cancelled.
  Ticket Started(Answer* answer, std::optional<uint32_t> uid, size_t bytes,
                 Clock::time_point now = Clock::now());

  // It has gone out, or its connection has gone. REQUIRES: the answer is still there.
  void Ended(Ticket ticket);

  // Cancels what has waited too long. Called now and then.
  void Sweep(Clock::time_point now = Clock::now());

 private:
  struct Queue {
    std::list<Entry> entries;  // The oldest first.
    size_t bytes = 0;
  };

  Queue& QueueOf(std::optional<uint32_t> uid) MRD_REQUIRES(mutex_);
  // The oldest of this queue is to be cancelled: held, and it counts no more.
  Answer* TakeOldest(Queue& queue) MRD_REQUIRES(mutex_);
  Answer* TakeTooLarge();
  Answer* TakeTooOld(Clock::time_point now);

  const size_t most_bytes_;
  Mutex mutex_;
  std::unordered_map<uint32_t, Queue> by_uid_ MRD_GUARDED_BY(mutex_);
  Queue without_session_ MRD_GUARDED_BY(mutex_);
  std::list<Entry> cancelled_ MRD_GUARDED_BY(mutex_);  // Until gRPC says that they have ended.
  size_t bytes_ MRD_GUARDED_BY(mutex_) = 0;            // Of all queues.
};

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_ANSWERS_H_
