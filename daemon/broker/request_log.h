// The requests that a session made with a request_id, so that a repeat gets the first answer: a
// client whose connection broke between commit and reply must neither lose nor double its regions.
#ifndef MRD_DAEMON_BROKER_REQUEST_LOG_H_
#define MRD_DAEMON_BROKER_REQUEST_LOG_H_

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "daemon/broker/lease.h"

namespace mrd::broker {

using RegisterResult = absl::StatusOr<std::shared_ptr<const LeaseViews>>;
using RegisterDone = absl::AnyInvocable<void(RegisterResult)>;

struct RequestRecord {
  std::string id;
  uint64_t fingerprint = 0;                  // Of the parameters.
  std::shared_ptr<const LeaseViews> answer;  // Null while the first call runs.
  std::vector<RegisterDone> waiters;         // Repeats that came while it ran.
  size_t live_leases = 0;
  std::chrono::steady_clock::time_point ended;  // When the last of its leases did.
  bool forgotten = false;
  std::list<std::shared_ptr<RequestRecord>>::iterator place;  // Where it is answered.
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

  // The record of this id; null where there is none.
  std::shared_ptr<RequestRecord> Find(const std::string& id);

  // REQUIRES: Find(id) is null.
  std::shared_ptr<RequestRecord> Begin(const std::string& id, uint64_t fingerprint);

  // The first call was refused: a repeat runs anew. Returns the repeats that waited, to be given
  // the refusal.
  std::vector<RegisterDone> Refuse(const std::shared_ptr<RequestRecord>& record);

  // The first call was answered.
  std::vector<RegisterDone> Answer(const std::shared_ptr<RequestRecord>& record,
                                   std::shared_ptr<const LeaseViews> answer);

  void LeaseEnded(const std::shared_ptr<RequestRecord>& record);

 private:
  using Records = std::list<std::shared_ptr<RequestRecord>>;

  void Forget();
  void Drop(Records& from);

  // The keys are the records' own ids.
  absl::flat_hash_map<std::string_view, std::shared_ptr<RequestRecord>> by_id_;
  // Those that are answered, each in one of these. The oldest first.
  Records living_;  // Have a lease that lives.
  Records ended_;
  size_t views_ = 0;  // In all answers.
  size_t live_ = 0;   // Leases of requests that are remembered.
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_REQUEST_LOG_H_
