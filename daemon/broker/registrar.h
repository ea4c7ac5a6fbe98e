// The threads that pin, map and deregister: work that may take seconds. Bounded, and fair: one
// session has at most half of the threads, and all sessions of a uid leave one to others; one more
// thread does nothing but ends that no client asked for; small work goes before large; beyond a
// bounded queue the answer is BUSY at once.
#ifndef MRD_DAEMON_BROKER_REGISTRAR_H_
#define MRD_DAEMON_BROKER_REGISTRAR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "daemon/broker/limits.h"
#include "daemon/broker/observer.h"
#include "daemon/mutex.h"

namespace mrd::broker {

// Whose work it is.
struct Owner {
  uint64_t session_id;
  uint32_t uid;
  // Ends that the client did not ask for: a share apart, and a thread of their own, so that none of
  // its work delays them.
  bool ends = false;
};

// The daemon's own work: no session's (their ids begin at 1), and no share of theirs.
inline constexpr Owner kDaemonsOwn{0, static_cast<uint32_t>(-1)};
inline constexpr Owner kDaemonsEnds{0, static_cast<uint32_t>(-1), true};

// Thread-safe.
class Registrar {
 public:
  using Task = absl::AnyInvocable<void()>;

  // `threads` of 0: one a core, at least four. One more is made for ends.
  // `observer` outlives it.
  Registrar(const Limits& limits, size_t threads, Observer& observer = Observer::None());
  // Runs what is queued, then ends the threads.
  ~Registrar();

  // Runs `task` on a thread of the pool. `weight`, in bytes, orders it. Errors: BUSY; the task is
  // not run then.
  absl::Status Submit(const Owner& owner, uint64_t weight, Task task);

  // Runs a task that must not be refused: the end of something. Counted to the session's share like
  // any other.
  void SubmitCleanup(const Owner& owner, Task task);

  // How many of the calling threads may do small work themselves at one time: one less than there
  // are, so that one is always left to take calls. Set once, before the first RunSmall.
  void SetInlineSlots(int slots) { inline_slots_ = slots; }

  // Runs small work in the calling thread where a slot is free (a hop to the pool costs more than
  // the work), else in the pool. Errors: as Submit.
  absl::Status RunSmall(const Owner& owner, Task task);

  // The same for the end of something: never refused.
  void RunSmallCleanup(const Owner& owner, Task task);

  size_t most_a_session() const { return most_a_session_; }
  size_t queued() const;

  struct Load {
    size_t queued;   // Tasks that wait for a thread.
    size_t running;  // Threads that run one.
    size_t threads;
  };
  Load load() const;

 private:
  struct Item {
    uint64_t weight;
    uint64_t sequence;
    std::chrono::steady_clock::time_point queued;
    Task task;
  };
  // Of a session's work, or of its ends.
  struct Share {
    Owner owner;
    std::deque<Item> light;  // Cleanup and small work.
    std::deque<Item> heavy;
    size_t running = 0;        // On the threads that it shares with others' work.
    size_t running_apart = 0;  // On that for ends.
    size_t waiting() const { return light.size() + heavy.size(); }
  };
  using Shares = absl::flat_hash_map<std::pair<uint64_t, bool>, Share>;  // By id and `ends`.
  struct UidShare {
    size_t waiting = 0;
    size_t running = 0;
    size_t running_apart = 0;
  };

  bool RunHere(Task& task);
  // Whether its share, and that of its uid, leave room for one more. `apart`: on the thread for
  // ends.
  bool MayRunLocked(const Share& share, bool apart) const MRD_REQUIRES(mutex_);
  // OK, or BUSY with the limit that is reached.
  absl::Status CheckRoomLocked(const Owner& owner) const MRD_REQUIRES(mutex_);
  void Enqueue(const Owner& owner, uint64_t weight, Task task) MRD_REQUIRES(mutex_);
  // The item to run next, and whose; false: none may run now.
  bool NextLocked(bool apart, Owner* owner, Item* item) MRD_REQUIRES(mutex_);
  void EndedLocked(bool apart, const Owner& owner) MRD_REQUIRES(mutex_);
  void Run(bool apart);

  const Limits limits_;
  Observer& observer_;
  std::atomic<int> inline_slots_{0};
  mutable Mutex mutex_;
  CondVar changed_;
  CondVar ends_changed_;  // For the thread that does nothing else.
  // Of those that have work queued or running.
  Shares shares_ MRD_GUARDED_BY(mutex_);
  absl::flat_hash_map<uint32_t, UidShare> by_uid_ MRD_GUARDED_BY(mutex_);
  size_t queued_ MRD_GUARDED_BY(mutex_) = 0;
  size_t running_ MRD_GUARDED_BY(mutex_) = 0;
  uint64_t sequence_ MRD_GUARDED_BY(mutex_) = 0;
  uint64_t picks_ MRD_GUARDED_BY(mutex_) = 0;
  bool ending_ MRD_GUARDED_BY(mutex_) = false;
  size_t most_a_session_ = 1;
  size_t most_a_uid_ = 1;
  size_t thread_count_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_REGISTRAR_H_
