// The heart: who is attached, what they hold, and its end. No I/O of its own: it knows no socket,
// no gRPC and no verbs.
#ifndef MRD_DAEMON_BROKER_BROKER_H_
#define MRD_DAEMON_BROKER_BROKER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/broker/books.h"
#include "daemon/broker/device_catalog.h"
#include "daemon/broker/device_watch.h"
#include "daemon/broker/drain.h"
#include "daemon/broker/lease_clock.h"
#include "daemon/broker/ledger/ledger.h"
#include "daemon/broker/limits.h"
#include "daemon/broker/observer.h"
#include "daemon/broker/registrar.h"
#include "daemon/broker/session.h"
#include "daemon/broker/session_log.h"
#include "daemon/broker/spec.h"
#include "daemon/fabric/fabric.h"
#include "daemon/memory/buffer.h"
#include "daemon/memory/disposer.h"
#include "daemon/mutex.h"

namespace mrd::broker {

// Called exactly once, from any thread. Where that is not the caller's own, a Work of the session
// lives meanwhile: with the last one the daemon may end, and with it whoever is to be answered.
using Done = absl::AnyInvocable<void(absl::Status)>;

// What RenewLeases did.
struct Renewal {
  uint64_t leases;
  std::optional<std::chrono::nanoseconds> shortest_ttl;  // Of all that the session has now.
};

struct LeasePage {
  std::vector<std::pair<uint64_t, LeaseView>> leases;  // With the id of its session.
  uint64_t next = 0;                                   // 0: no more.
};

// Of revoked leases: how many there were, or the first error of one that would not end.
using RevokeDone = absl::AnyInvocable<void(absl::StatusOr<uint64_t>)>;
// How many of a session's leases have ended, and the first error of those that have not.
using LeasesEnded = absl::AnyInvocable<void(size_t, const absl::Status&)>;

struct MemberedDomain {
  DomainView domain;
  uint64_t members;  // Sessions.
};

struct DrainView {
  std::optional<DrainSwitch::View> drained;  // Nothing: it is not.
  uint64_t sessions_left = 0;                // But for admins'.
};

struct Totals {
  Amounts booked;
  size_t buffers = 0;
  size_t mappings = 0;
};

class Work;

// Thread-safe. Methods that take a Done or RegisterDone may call it before they return.
class Broker {
 public:
  // `fabric`, `limits` and `observer` outlive the broker. REQUIRES at the end: every session has
  // ended (Drain).
  // `adopts`: what an earlier run has left is taken over before anything else, and the devices are
  // watched from then on; whoever does it calls DeviceWatch::Start.
  Broker(fabric::Fabric& fabric, const Limits& limits, size_t threads = 0,
         Observer& observer = Observer::None(), bool adopts = false);
  ~Broker();

  // Sessions.
  // Errors: QUOTA_SESSIONS, POLICY_DENIED, DRAINING. Admins are let in while the operator drains
  // the daemon.
  absl::StatusOr<SessionRef> Attach(Identity identity, std::string name,
                                    std::shared_ptr<Link> link);
  // Attaches a session of before a restart of the daemon again. Errors: SESSION_UNKNOWN, also where
  // `identity` is not of the process that has it.
  absl::StatusOr<SessionRef> Resume(const Identity& identity, const std::string& token,
                                    std::shared_ptr<Link> link);
  // Ends those whose process has ended (`lives` tells) or whose time to come back is over, and what
  // is left unused of domains of before. 0: it need not be called again. On a thread that may
  // block.
  size_t SweepAwaited(const std::function<bool(const Identity&)>& lives,
                      std::chrono::steady_clock::time_point now);
  size_t awaited();
  // Ends it: endpoints, regions, domains, buffers, in this order, on the registrar's threads. At
  // once its token is worth nothing. Any number of calls.
  void End(const SessionRef& session, SessionEnd how = SessionEnd::kRevoked);
  // Errors: SESSION_UNKNOWN, SESSION_AWAITED.
  absl::StatusOr<SessionRef> Find(const std::string& token);
  std::vector<SessionView> Sessions(uint64_t after_id, size_t most);
  size_t session_count();
  // Whether this process has an admin session: its gRPC connections, as this uid, are an admin's.
  bool HasAdmin(pid_t pid, uid_t uid);
  // Refuses new sessions, ends all of them, and calls `ended` when the last one holds nothing any
  // more.
  void Drain(std::function<void()> ended);
  bool draining() const { return draining_.load(); }

  // What survives this process is written down there from now on. Once, before the broker is used.
  // `ledger` outlives it.
  void SetLedger(ledger::Ledger& ledger);
  // Null: nothing survives.
  ledger::Ledger* ledger() { return ledger_; }

  // The operator's hand. `reason` is bounded and printable; each is logged with who did it.
  // Ends leases of any sessions: fences first, then tells. Errors: INVALID_LENGTH, LEASE_UNKNOWN
  // (none was ended), SESSION_UNKNOWN, those of a device that will not.
  void RevokeLeases(const SessionRef& admin, std::vector<uint64_t> lease_ids,
                    const std::string& reason, RevokeDone done);
  // Tells the session, and ends it. Errors: SESSION_UNKNOWN; REQUEST_INVALID: it is `admin`.
  absl::Status RevokeSession(const SessionRef& admin, uint64_t id, const std::string& reason);
  // Lets nothing new begin, and tells the sessions; after the deadline those that are left are
  // ended by EndOverdue, admins' excepted.
  void StartDrain(const Session& admin, const std::string& reason,
                  std::optional<std::chrono::nanoseconds> deadline);
  void StopDrain(const Session& admin);
  // To be called about every second.
  void EndOverdue(DrainSwitch::Clock::time_point now = DrainSwitch::Clock::now());
  DrainView DrainNow();
  // OK, or DRAINING with what is refused.
  absl::Status TakesMore(const char* refused) const { return drain_.Check(refused); }

  // Buffers. What is wrong with a descriptor is told to the call that names it. False: the session
  // has earned its end, with an id that is 0 or in use, or with far more descriptors than it may
  // have.
  bool AddBuffer(Session& session, uint64_t id, UniqueFd fd);
  // On a thread of the registrar: the last close of a large file takes long. Errors:
  // BUFFER_UNKNOWN, INVALID_LENGTH, SESSION_UNKNOWN; then none is released.
  void ReleaseBuffers(const SessionRef& session, const std::vector<uint64_t>& ids, Done done);

  // Regions.
  void Register(const SessionRef& session, RegisterSpec spec, RegisterDone done);
  void Deregister(const SessionRef& session, std::vector<uint64_t> lease_ids, Done done);
  // Leases with a greater id than `after`, of this session, or of all where it is null.
  LeasePage Leases(const SessionRef& session, uint64_t after, size_t most);
  SessionRef SessionById(uint64_t id);
  // Each of them lasts its whole ttl from now on; with none named, every lease of the session that
  // has one. Blocks for nothing, whatever else is under way. Errors: LEASE_UNKNOWN (and none is
  // renewed), INVALID_LENGTH, SESSION_UNKNOWN.
  absl::StatusOr<Renewal> Renew(Session& session, const std::vector<uint64_t>& lease_ids);
  // Ends leases whose time has come, on the registrar's threads; their sessions are told when they
  // have ended. Returns when to call it again; nothing: not before the clock wakes its caller.
  std::optional<std::chrono::steady_clock::time_point> EndLapsed(
      std::chrono::steady_clock::time_point now);

  std::map<std::string, uint64_t> RegionsByDevice();
  Totals Count();
  // Every session, ending ones too.
  std::vector<SessionRef> All();
  // Regions that no deregistration could end.
  Amounts Stuck();

  // Domains.
  // On this device, made when first asked for: of this named domain, or the session's private one
  // where it is null. May block. Errors: those of Fabric::CreateDomain, DEVICE_UNKNOWN,
  // DEVICE_REMOVED, POLICY_DENIED, SESSION_UNKNOWN. One that is asked for while its device is
  // replaced by one of the same name is one of either, and says which.
  absl::StatusOr<SessionDomain> DomainFor(Session& session, const NamedDomainRef& named,
                                          const std::string& device);
  // The session is a member from now on. Errors: those of NamedDomains::Open, QUOTA_DOMAINS,
  // POLICY_DENIED, SESSION_UNKNOWN, BUSY.
  absl::StatusOr<DomainView> OpenDomain(Session& session, const OpenDomainSpec& spec);
  // It is none any more; what it has there stays until its end. Errors: DOMAIN_UNKNOWN.
  void CloseDomain(const SessionRef& session, const std::string& name, Done done);
  // One that the session is a member of; null where `name` is empty. Errors: DOMAIN_UNKNOWN.
  absl::StatusOr<NamedDomainRef> JoinedDomain(Session& session, const std::string& name);
  NamedDomains& named_domains() { return named_domains_; }
  // All of them, by name, after this one; at most so many.
  std::vector<MemberedDomain> Domains(const std::string& after, size_t most);

  uint64_t NextId() {
    const uint64_t id = next_id_.fetch_add(1);
    if (ledger_) ledger_->UsesId(id);
    return id;
  }
  fabric::Fabric& fabric() { return fabric_; }
  Books& books() { return books_; }
  DeviceCatalog& devices() { return devices_; }
  LeaseClock& lease_clock() { return lease_clock_; }
  DeviceWatch& device_watch() { return device_watch_; }
  Registrar& registrar() { return registrar_; }
  Observer& observer() { return observer_; }
  SessionLog& session_log() { return session_log_; }
  // The only one: what waits to be closed is counted whoever refused it.
  memory::Disposer& disposer() { return disposer_; }
  memory::Mappings& mappings() { return mappings_; }
  // The built-in defaults, and what no policy changes: see Session::terms().
  const Limits& limits() const { return limits_; }

 private:
  friend class AddKeys;
  friend class Adoption;
  friend class DeviceWatch;
  friend class Registration;
  friend class Removal;
  friend class Teardown;
  friend class Work;

  // Deregisters and unbooks. Returns the first error; a lease that could not be ended goes back to
  // its session or, where that is ending, is kept by the broker: its pages must not be reused while
  // a device reaches them. Those that have ended are still there afterwards, the others null.
  absl::Status EndLeases(const SessionRef& session, std::vector<std::unique_ptr<Lease>>& leases,
                         LeaseEnd cause);
  // The same on the registrar's threads, and then tells the session of those that have ended, and
  // `then`, which may be empty.
  void EndAndTell(Work work, std::vector<std::unique_ptr<Lease>> leases, LeaseEnd cause,
                  Event event, LeasesEnded then = {});
  void RevokeOf(const SessionRef& session, const std::vector<uint64_t>& ids,
                const std::string& reason, const Session& admin, LeasesEnded then);
  void EndLapsedOf(const SessionRef& session, std::chrono::steady_clock::time_point now);
  absl::StatusOr<SessionDomain> MakeDomain(const std::string& device);
  // A lease with a ttl was put in.
  void WatchLocked(Session& session) MRD_REQUIRES(session.mutex);
  // Leases whose regions no deregistration could end, and why: kept, and booked, for good.
  void KeepStuck(const Session& session, std::vector<std::unique_ptr<Lease>> leases,
                 const absl::Status& why);
  // Everything of it has been taken out and freed.
  void Gone(SessionRef session);

  void AddLocked(const SessionRef& session) MRD_REQUIRES(mutex_);
  void WriteDown(Session& session);

  fabric::Fabric& fabric_;
  ledger::Ledger* ledger_ = nullptr;
  Observer& observer_;
  SessionLog session_log_;
  const Limits limits_;
  memory::Mappings mappings_;
  Books books_;
  std::atomic<uint64_t> next_id_;
  std::atomic<uint64_t> next_session_id_{1};
  std::atomic<bool> draining_{false};  // The daemon ends.
  DrainSwitch drain_;                  // The operator's.

  Mutex mutex_;
  std::unordered_map<std::string, SessionRef> by_token_
      MRD_GUARDED_BY(mutex_);  // Without ending ones.
  std::map<uint64_t, SessionRef> by_id_
      MRD_GUARDED_BY(mutex_);  // Ending ones too, until they hold nothing.
  // One a session of admins: of which process, and its uid.
  std::multiset<std::pair<pid_t, uid_t>> admins_ MRD_GUARDED_BY(mutex_);
  struct User {
    std::shared_ptr<std::atomic<size_t>> calls = std::make_shared<std::atomic<size_t>>(0);
    size_t sessions = 0;
  };
  std::unordered_map<uint32_t, User> users_ MRD_GUARDED_BY(mutex_);  // With sessions.
  std::function<void()> drained_ MRD_GUARDED_BY(mutex_);
  // Of the adoption: when those that are awaited still are ended.
  std::chrono::steady_clock::time_point await_until_ MRD_GUARDED_BY(mutex_);
  std::vector<SessionRef> awaited_ MRD_GUARDED_BY(mutex_);
  std::vector<SessionRef> adopted_ MRD_GUARDED_BY(mutex_);  // That may have domains of before.
  std::vector<std::unique_ptr<Lease>> stuck_
      MRD_GUARDED_BY(mutex_);  // That no deregistration could end.
  memory::Disposer disposer_;
  DeviceCatalog devices_;
  NamedDomains named_domains_;
  LeaseClock lease_clock_;
  DeviceWatch device_watch_;

  Registrar registrar_;  // Last: its threads use all of the above.
};

// A call under way that holds something of its session: the session is not gone before it.
class Work {
 public:
  // Errors: SESSION_UNKNOWN.
  static absl::StatusOr<Work> Begin(Broker& broker, const SessionRef& session);
  // REQUIRES: the session's lock is held, and it is not ending, or Teardown calls.
  Work(Broker& broker, const SessionRef& session) MRD_REQUIRES(session->mutex);
  Work(Work&&) = default;
  Work& operator=(Work&&) = delete;
  ~Work();

  const SessionRef& session() const { return session_; }

 private:
  Broker* broker_;
  SessionRef session_;
};

// The refusal for a session that is ending.
absl::Status SessionUnknown();
// For a domain that the session is not in.
absl::Status DomainUnknown(const std::string& name);

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_BROKER_H_
