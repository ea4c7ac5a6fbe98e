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
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/broker/books.h"
#include "daemon/broker/device_catalog.h"
#include "daemon/broker/device_watch.h"
#include "daemon/broker/limits.h"
#include "daemon/broker/registrar.h"
#include "daemon/broker/session.h"
#include "daemon/fabric/fabric.h"
#include "daemon/memory/buffer.h"
#include "daemon/memory/disposer.h"
#include "daemon/mutex.h"

namespace mrd::broker {

struct RangeSpec {
  uint64_t buffer_id;
  uint64_t offset;
  uint64_t length;
  uint64_t addr;
};

struct RegisterSpec {
  std::string request_id;    // Empty: none.
  uint64_t fingerprint = 0;  // Of the parameters.
  std::vector<RangeSpec> ranges;
  std::vector<std::string> devices;  // Empty: the first active one.
  bool all_devices = false;
  fabric::AccessMask access = 0;
  bool release_after = false;
};

// Called exactly once, from any thread. Where that is not the caller's own, a Work of the session
// lives meanwhile: with the last one the daemon may end, and with it whoever is to be answered.
using Done = absl::AnyInvocable<void(absl::Status)>;

struct LeasePage {
  std::vector<std::pair<uint64_t, LeaseView>> leases;  // With the id of its session.
  uint64_t next = 0;                                   // 0: no more.
};

struct Totals {
  Amounts booked;
  size_t buffers = 0;
  size_t mappings = 0;
};

// Thread-safe. Methods that take a Done or RegisterDone may call it before they return.
class Broker {
 public:
  // `fabric` and `limits` outlive the broker. REQUIRES at the end: every session has ended (Drain).
  Broker(fabric::Fabric& fabric, const Limits& limits, size_t threads = 0);
  ~Broker();

  // Sessions.
  // Errors: QUOTA_SESSIONS, DRAINING.
  absl::StatusOr<SessionRef> Attach(Identity identity, std::string name,
                                    std::shared_ptr<Link> link);
  // Ends it: endpoints, regions, domains, buffers, in this order, on the registrar's threads. At
  // once its token is worth nothing. Any number of calls.
  void End(const SessionRef& session);
  // Errors: SESSION_UNKNOWN.
  absl::StatusOr<SessionRef> Find(const std::string& token);
  std::vector<SessionView> Sessions(uint64_t after_id, size_t most);
  size_t session_count();
  // Refuses new sessions, ends all of them, and calls `ended` when the last one holds nothing any
  // more.
  void Drain(std::function<void()> ended);
  bool draining() const { return draining_.load(); }

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

  std::map<std::string, uint64_t> RegionsByDevice();
  Totals Count();
  // Of this session on this device, made when first asked for. May block.
  // Errors: those of Fabric::CreateDomain, SESSION_UNKNOWN. A domain that is asked for while its
  // device is replaced by one of the same name is one of either, and says which.
  absl::StatusOr<SessionDomain> DomainFor(Session& session, const std::string& device);

  uint64_t NextId() { return next_id_.fetch_add(1); }
  fabric::Fabric& fabric() { return fabric_; }
  Books& books() { return books_; }
  DeviceCatalog& devices() { return devices_; }
  DeviceWatch& device_watch() { return device_watch_; }
  Registrar& registrar() { return registrar_; }
  // The only one: what waits to be closed is counted whoever refused it.
  memory::Disposer& disposer() { return disposer_; }
  memory::Mappings& mappings() { return mappings_; }
  const Limits& limits() const { return limits_; }

 private:
  friend class DeviceWatch;
  friend class Registration;
  friend class Removal;
  friend class Teardown;
  friend class Work;

  std::vector<SessionRef> All();
  // Deregisters and unbooks. Returns the first error; a lease that could not be ended goes back to
  // its session or, where that is ending, is kept by the broker: its pages must not be reused while
  // a device reaches them.
  absl::Status EndLeases(const SessionRef& session, std::vector<std::unique_ptr<Lease>> leases);
  // Leases whose regions no deregistration could end, and why: kept, and booked, for good.
  void KeepStuck(const Session& session, std::vector<std::unique_ptr<Lease>> leases,
                 const absl::Status& why);
  // Everything of it has been taken out and freed.
  void Gone(const SessionRef& session);

  fabric::Fabric& fabric_;
  const Limits limits_;
  memory::Mappings mappings_;
  Books books_;
  std::atomic<uint64_t> next_id_;
  std::atomic<uint64_t> next_session_id_{1};
  std::atomic<bool> draining_{false};

  Mutex mutex_;
  std::unordered_map<std::string, SessionRef> by_token_
      MRD_GUARDED_BY(mutex_);  // Without ending ones.
  std::map<uint64_t, SessionRef> by_id_
      MRD_GUARDED_BY(mutex_);  // Ending ones too, until they hold nothing.
  std::function<void()> drained_ MRD_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Lease>> stuck_
      MRD_GUARDED_BY(mutex_);  // That no deregistration could end.
  memory::Disposer disposer_;
  DeviceCatalog devices_;
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

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_BROKER_H_
