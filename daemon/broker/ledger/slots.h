// The ledger's file: records in a memfd, which a later process can open after this one was killed
// at any moment. It is kept by whoever keeps its descriptor.
#ifndef MRD_DAEMON_BROKER_LEDGER_SLOTS_H_
#define MRD_DAEMON_BROKER_LEDGER_SLOTS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/mutex.h"
#include "daemon/unique_fd.h"

namespace mrd::broker::ledger {

// Of a record; in the file, so none is ever given another meaning. Of another version there may be
// others: they stay as they are.
enum class Kind : uint8_t {
  kDevice = 1,
  kSession = 2,
  kMembership = 3,
  kLease = 4,
  kCall = 5,
  kEndpoint = 6,
};

// A record lies in one slot of fixed size or in a chain of them. It counts from the one atomic
// store that commits its first slot, and no more from the one that takes that back: a process that
// is killed in between leaves all of it or nothing. What the last process stored is there for the
// next one, since both map the same pages; nothing is written to any disk.
//
// Thread-safe.
class Slots {
 public:
  // Of a record's first slot. 0: none.
  using Id = uint32_t;

  // A new, empty one. RESOURCE_EXHAUSTED: no memory.
  static absl::StatusOr<std::unique_ptr<Slots>> Create();
  // One that another process wrote. DATA_LOSS: it is damaged, or of a version that this one does
  // not read (version.h); then nothing in it is to be believed.
  static absl::StatusOr<std::unique_ptr<Slots>> Open(UniqueFd fd);
  // Of whoever took it over last, or made it.
  uint32_t version() const;
  // From now on this version writes it. Before anything is written.
  void TakeOver();
  ~Slots();
  Slots(const Slots&) = delete;
  Slots& operator=(const Slots&) = delete;

  // Writes a record, which has this stamp from the moment it counts. RESOURCE_EXHAUSTED: there is
  // no room.
  absl::StatusOr<Id> Put(Kind kind, std::string_view bytes, uint64_t stamp = 0)
      MRD_EXCLUDES(mutex_);
  // It counts no more. Nothing where `id` is 0.
  void Erase(Id id) MRD_EXCLUDES(mutex_);
  // A number that goes with a record and is set by one atomic store.
  void SetStamp(Id id, uint64_t stamp);
  uint64_t stamp(Id id) const;

  // False: there is no such record.
  bool Get(Id id, std::string* bytes) const;
  // Every record of the kind, in no order. Not while others write.
  void ForEach(Kind kind, const std::function<void(Id, std::string_view)>& visit) const;

  // Numbers of the file as a whole, each set by one atomic store.
  enum Counter {
    kNextId,
    kNextSessionId,
    kGeneration,
    kCrashedAdoptions,  // In a row.
    kNextFdName,
    kMostHandle,           // Of any region.
    kUnfinishedAdoptions,  // In a row, however the process ended.
  };
  uint64_t counter(Counter which) const;
  void SetCounter(Counter which, uint64_t value);
  // A counter where it lies in the file, for a signal handler.
  std::atomic<uint64_t>& raw(Counter which) const;
  // To at least this; several threads may at once.
  void RaiseCounter(Counter which, uint64_t value);

  int fd() const { return fd_.get(); }
  uint64_t bytes() const;  // Of memory that it has.

  // Called before and after each store that changes what counts: tests end the process there.
  static void SetHook(void (*hook)());

 private:
  struct Slot;
  struct Header;

  explicit Slots(UniqueFd fd) : fd_(std::move(fd)) {}

  absl::Status Map();
  absl::Status GrowLocked() MRD_REQUIRES(mutex_);
  absl::Status Check();
  Slot& at(Id id) const;
  Header& header() const;
  // Reads a chain; false where it is broken.
  bool Read(Id first, std::string* bytes, std::vector<Id>* chain) const;

  const UniqueFd fd_;
  char* base_ = nullptr;
  std::atomic<uint32_t> slots_ = 0;  // That there are, the header's among them.
  mutable Mutex mutex_;
  std::vector<Id> free_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::broker::ledger

#endif  // MRD_DAEMON_BROKER_LEDGER_SLOTS_H_
