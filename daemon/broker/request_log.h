// The requests that a session made with a request_id, so that a repeat gets the first answer: a
// client whose connection broke between commit and reply must neither lose nor double its regions.
#ifndef MRD_DAEMON_BROKER_REQUEST_LOG_H_
#define MRD_DAEMON_BROKER_REQUEST_LOG_H_

#include <chrono>
#include <cstdint>
#include <forward_list>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "daemon/broker/lease.h"

namespace mrd::broker {

using RegisterResult = absl::StatusOr<std::shared_ptr<const LeaseViews>>;
using RegisterDone = absl::AnyInvocable<void(RegisterResult)>;
// A repeat that came while the first call ran.
struct Waiter {
  RegisterDone done;
  std::function<bool()> wanted;  // Whether its caller still waits; empty: always.
};
using Waiters = std::forward_list<Waiter>;

// Small: most regions have one of their own. Its log owns it: until it is refused or, once it is
// forgotten, until the last of its leases has ended.
struct RequestRecord {
  std::string id;
  uint64_t fingerprint = 0;  // Of the parameters.
  // The answer, in its order: leases of the session, or what `ended` has of them.
  absl::InlinedVector<uint64_t, 1> lease_ids;
  std::forward_list<LeaseView> ended;
  Waiters waiters;
  uint32_t live_leases = 0;
  bool answered = false;
  bool forgotten = false;
  std::chrono::steady_clock::time_point ended_at;  // When the last of its leases did.
  std::list<RequestRecord>::iterator place;
};

// Not thread-safe: guarded by its session's lock.
class RequestLog {
 public:
  // For 10 minutes or 1,000 later ones after its last lease has ended; sooner where the session has
  // had so many leases that the answers would take much memory: then the oldest go, those without
  // a lease that lives first.
  static constexpr std::chrono::minutes kRemembered{10};
  static constexpr size_t kMostEnded = 1000;
  static constexpr size_t kMostViews = 10000;  // Of ended leases, or as many as live ones.
  static constexpr int kMostWaiters = 8;       // Of one request.

  // The record of this id; null where there is none.
  RequestRecord* Find(const std::string& id);

  // REQUIRES: Find(id) is null.
  RequestRecord* Begin(const std::string& id, uint64_t fingerprint);

  // The first call was refused: a repeat runs anew. Returns the repeats that waited, to be given
  // the refusal. The record is no more.
  Waiters Refuse(RequestRecord& record);

  // The first call was answered with leases, which are its session's now. `call`: what the ledger
  // has of one with several leases; it forgets the request when this does.
  Waiters Answer(RequestRecord& record, const LeaseViews& answer,
                 const std::shared_ptr<ledger::CallRecord>& call = nullptr);

  // A lease is its session's no more: it is being ended...
  void LeaseTaken(RequestRecord& record, const LeaseView& view);
  // ... and would not end,
  void LeasePutBack(RequestRecord& record, uint64_t lease_id);
  // ... or has ended. The record may be no more.
  void LeaseEnded(RequestRecord& record);

 private:
  using Records = std::list<RequestRecord>;

  void Forget();
  void Drop(Records& from);

  // The keys are the records' own ids.
  absl::flat_hash_map<std::string_view, RequestRecord*> by_id_;
  // Each record is in one of these. The oldest first.
  Records running_;
  Records living_;     // Have a lease that lives.
  Records ended_;      // Have none.
  Records forgotten_;  // Have one, and are not in by_id_.
  // Beside the records, most of which have none.
  absl::flat_hash_map<const RequestRecord*, std::weak_ptr<ledger::CallRecord>> calls_;
  size_t views_ = 0;  // In all answers.
  size_t live_ = 0;   // Leases of requests that are remembered.
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_REQUEST_LOG_H_
