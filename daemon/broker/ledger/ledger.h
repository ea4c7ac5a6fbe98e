// The daemon's crash-safe record of devices, sessions, domains, endpoints and leases; and the
// descriptors that keep them alive in the kernel. Where there is no store there is no ledger.
//
// What is written when, so that the process may be killed between any two steps: an object of the
// kernel's is made before its record, and its record is erased before the object ends. So what has
// no record may be ended by whoever comes next, and no two records ever name one handle, which the
// kernel uses again at once.
#ifndef MRD_DAEMON_BROKER_LEDGER_LEDGER_H_
#define MRD_DAEMON_BROKER_LEDGER_LEDGER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "daemon/broker/ledger/record.h"
#include "daemon/broker/ledger/slots.h"
#include "daemon/broker/ledger/store.h"
#include "daemon/fabric/fabric.h"
#include "daemon/mutex.h"
#include "mrd/ledger/v1/ledger.pb.h"

namespace mrd::broker::ledger {

namespace pb = ::mrd::ledger::v1;  // The records.

// The name of the ledger's own descriptor in the store.
inline constexpr char kFdName[] = "ledger";

// As the records have times of the system's clock.
inline int64_t NanosSince1970(std::chrono::system_clock::time_point time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

// Thread-safe.
class Ledger {
 public:
  // `store` outlives it, and has the slots' descriptor under kFdName.
  Ledger(std::unique_ptr<Slots> slots, Store& store);

  // RESOURCE_EXHAUSTED: there is no room.
  absl::StatusOr<Record> Put(const pb::Session& session) { return PutAs(Kind::kSession, session); }
  absl::StatusOr<Record> Put(const pb::Membership& member) {
    return PutAs(Kind::kMembership, member);
  }
  // `stamp`: when it was granted or renewed.
  absl::StatusOr<Record> Put(const pb::Lease& lease, uint64_t stamp) {
    return PutAs(Kind::kLease, lease, stamp);
  }
  absl::StatusOr<Record> Put(const pb::Call& call) { return PutAs(Kind::kCall, call); }
  // `stamp`: not 0 where the peer has left.
  absl::StatusOr<Record> Put(const pb::Endpoint& endpoint, uint64_t stamp) {
    return PutAs(Kind::kEndpoint, endpoint, stamp);
  }
  // The record's message as it was written; false where it is none.
  template <typename Message>
  bool Read(const Record& record, Message* message) const {
    std::string bytes;
    return slots_->Get(record.id(), &bytes) && message->ParseFromString(bytes);
  }

  // Places of the store that only devices get, of its limit at most a quarter: where connections
  // had them all, nothing new of anybody's would survive once the devices have another generation.
  static constexpr size_t kForDevices = 64;

  // Sees to it that this opening of a device outlives this process. False: nothing that lies there
  // survives, which is logged once; the next call tries again. Before anything there is written
  // down. May block.
  bool KeepDevice(fabric::Fabric& fabric, const fabric::DeviceInfo& device)
      MRD_EXCLUDES(devices_mutex_);
  // The same of one that an earlier process kept.
  void AdoptDevice(const fabric::DeviceInfo& device, Record record, StoredFd stored)
      MRD_EXCLUDES(devices_mutex_);
  // The openings that outlive this process: names of devices, and generations. May block.
  std::set<std::pair<std::string, uint64_t>> KeptDevices() MRD_EXCLUDES(devices_mutex_);
  // The device has gone, or nothing is left in that generation. A removed device goes with its
  // older generations: the kernel's removal waits for every descriptor.
  void DropDevice(const std::string& device, uint64_t generation) MRD_EXCLUDES(devices_mutex_);
  void DropDeviceUpTo(const std::string& device, uint64_t generation) MRD_EXCLUDES(devices_mutex_);

  // Keeps a connection's descriptor under a name of its own. Errors: those of Store::Add. May
  // block.
  absl::StatusOr<StoredFd> Keep(int fd);

  // Ids below this are used up, whenever the process ends.
  void UsesId(uint64_t id);
  void UsesSessionId(uint64_t id) { slots_->RaiseCounter(Slots::kNextSessionId, id + 1); }
  // Handles of regions: see Adoption.
  void UsesHandle(uint32_t handle);

  Slots& slots() { return *slots_; }
  Store& store() { return store_; }

 private:
  struct Kept {
    StoredFd stored;
    Record record;  // Erased first.
  };

  absl::StatusOr<StoredFd> Add(int fd);
  absl::Status TryToKeep(fabric::Fabric& fabric, const fabric::DeviceInfo& device, Kept* kept);
  absl::StatusOr<Record> PutAs(Kind kind, const google::protobuf::MessageLite& message,
                               uint64_t stamp = 0);

  const std::unique_ptr<Slots> slots_;
  Store& store_;
  std::atomic<uint64_t> next_fd_name_;
  std::atomic<uint64_t> ids_reserved_;
  std::atomic<uint64_t> most_handle_;
  Mutex devices_mutex_;  // Held while the store is told: no record is before its device's.
  std::map<std::pair<std::string, uint64_t>, Kept> devices_ MRD_GUARDED_BY(devices_mutex_);
};

// What keeps the record of a call with several leases: their last one erases it.
class CallRecord {
 public:
  // `ledger` outlives it.
  CallRecord(Ledger& ledger, Record record) : ledger_(ledger), record_(std::move(record)) {}

  // Its leases count as before, and its request is not repeated any more: a record that names all
  // leases that it ever had becomes a small one. Where the ledger has no room for that it stays.
  void ForgetRequest();

 private:
  Ledger& ledger_;
  Record record_;
};

}  // namespace mrd::broker::ledger

#endif  // MRD_DAEMON_BROKER_LEDGER_LEDGER_H_
