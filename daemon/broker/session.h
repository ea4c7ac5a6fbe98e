// One attached client process and all that it holds.
#ifndef MRD_DAEMON_BROKER_SESSION_H_
#define MRD_DAEMON_BROKER_SESSION_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/broker/domain_set.h"
#include "daemon/broker/event.h"
#include "daemon/broker/expiry.h"
#include "daemon/broker/identity.h"
#include "daemon/broker/lease.h"
#include "daemon/broker/ledger/ledger.h"
#include "daemon/broker/named_domain.h"
#include "daemon/broker/observer.h"
#include "daemon/broker/registrar.h"
#include "daemon/broker/request_log.h"
#include "daemon/memory/buffer.h"
#include "daemon/mutex.h"

namespace mrd::broker {

struct Endpoint;

// Who that is to the policy.
policy::Subject SubjectOf(const Identity& identity);

// One buffer of a session's, booked for as long as this lives.
class BookedBuffer {
 public:
  // Errors: QUOTA_BUFFERS, POLICY_DENIED.
  static absl::StatusOr<BookedBuffer> Make(Books& books, HolderRef holder);
  BookedBuffer() = default;
  BookedBuffer(BookedBuffer&& other) noexcept
      : books_(std::exchange(other.books_, nullptr)), holder_(std::move(other.holder_)) {}
  BookedBuffer& operator=(BookedBuffer&& other) noexcept {
    std::swap(books_, other.books_);
    std::swap(holder_, other.holder_);
    return *this;
  }
  ~BookedBuffer();

 private:
  Books* books_ = nullptr;
  HolderRef holder_;
};

// What a session passed under an id. Its end may take long, with the pages of the file: on a thread
// of the registrar only.
struct BufferSlot {
  BookedBuffer booked;
  std::shared_ptr<memory::Buffer> buffer;  // Null: refused.
  absl::Status refusal;
  bool claimed = false;  // A Register call has named it.
};

struct SessionView {
  uint64_t id;
  Identity identity;
  std::string name;
  std::chrono::system_clock::time_point attached;
  Amounts held;
  size_t buffers;
  size_t leases;
  std::string rule;  // Of the policy; empty: none.
  std::string command_line;
  size_t unclaimed;  // Buffers that no Register call has named.
  uint64_t calls;
  uint64_t renewals;
  uint64_t lapses;
  bool ending;
};

// What is known of a session's end as it begins.
struct SessionEnding {
  SessionEnd how = SessionEnd::kRevoked;
  std::chrono::steady_clock::time_point since;
  Amounts held;
  size_t buffers = 0;
  size_t leases = 0;
};

// A connection between its making and its session's having it.
struct BeingKept {
  std::optional<bool> left = {};     // Its peer has left meanwhile: whether by an error.
  bool event_waits = false;          // See fabric::ConnectionSpec::event.
  ledger::Record* record = nullptr;  // Once it is written down.
};

// Thread-safe by its mutex. State is public to the parts of the broker, which take the lock.
class Session {
 public:
  Session(uint64_t id, std::string token, Identity identity, HolderRef holder, std::string name,
          std::shared_ptr<Link> link,
          std::chrono::system_clock::time_point attached = std::chrono::system_clock::now())
      : id(id),
        token(std::move(token)),
        identity(std::move(identity)),
        holder(std::move(holder)),
        user(this->holder->user()),
        name(std::move(name)),
        link(std::make_shared<SessionLink>(std::move(link))),
        attached(attached) {}

  SessionView View();
  // Of its leases, with what remains of it now.
  LeaseView ViewOf(const Lease& lease) const MRD_REQUIRES(mutex);
  // What a request was answered, with what remains of its leases now.
  std::shared_ptr<const LeaseViews> AnswerOf(const RequestRecord& record) const MRD_REQUIRES(mutex);
  // A lease is in `leases` and, with a ttl, in `expiries`, from here on...
  void PutLease(std::unique_ptr<Lease> lease) MRD_REQUIRES(mutex);
  // ... until here. Null: none of this id. It is in `being_ended` until whoever ends its regions
  // calls Ended, or puts it back.
  std::unique_ptr<Lease> TakeLease(uint64_t lease_id) MRD_REQUIRES(mutex);
  void Ended(const Lease& lease) MRD_REQUIRES(mutex);
  // The refusal of a call that names a lease which is not in `leases`. `so`: what was not done.
  absl::Status NoLease(uint64_t lease_id, const char* so) const MRD_REQUIRES(mutex);
  Owner owner() const { return {id, user}; }
  Owner ends() const { return {id, user, /*ends=*/true}; }
  // What it may have and do, by the policy in force.
  policy::TermsRef terms() const { return holder->terms(); }

  const uint64_t id;
  const std::string token;
  const Identity identity;
  const HolderRef holder;  // Of all that is booked for it.
  const uint32_t user;     // See policy::Match; as it was when it attached.
  const std::string name;
  const std::shared_ptr<SessionLink> link;
  const std::chrono::system_clock::time_point attached;
  // Of before a restart of the daemon, and its client has not attached it again yet.
  std::atomic<bool> awaited{false};
  std::atomic<size_t> calls{0};                             // In flight.
  std::shared_ptr<std::atomic<size_t>> calls_of_user = {};  // Of all sessions of the user.
  // Since it attached: counted by whoever does it, shown in its view.
  std::atomic<uint64_t> calls_made{0};
  std::atomic<uint64_t> renewals{0};  // Renew calls that were not refused.
  std::atomic<uint64_t> lapses{0};    // Leases.

  Mutex mutex;
  // Set once, before anything is taken out: whoever adds something looks at it under the same lock.
  bool ending MRD_GUARDED_BY(mutex) = false;
  SessionEnding end MRD_GUARDED_BY(mutex);  // Set with `ending`.
  // Of its process when it attached, escaped; empty until it has been read.
  std::string command_line MRD_GUARDED_BY(mutex);
  // Calls that hold something of it, and its teardown. When the last of them is over it holds
  // nothing any more.
  size_t pending MRD_GUARDED_BY(mutex) = 0;
  Amounts held MRD_GUARDED_BY(mutex);  // What is booked for it, of regions, bytes and endpoints.
  absl::flat_hash_map<uint64_t, BufferSlot> buffers MRD_GUARDED_BY(mutex);
  // Of a buffer: the next one is mostly the same, and shares it.
  absl::Status last_refusal MRD_GUARDED_BY(mutex);
  DomainSet domains;                                                   // Its private ones.
  std::map<std::string, NamedDomainRef> joined MRD_GUARDED_BY(mutex);  // By name.
  std::map<std::string, ledger::Record> memberships MRD_GUARDED_BY(mutex);
  ledger::Record record MRD_GUARDED_BY(mutex);  // None: it does not survive the daemon.
  absl::btree_map<uint64_t, std::unique_ptr<Lease>> leases MRD_GUARDED_BY(mutex);
  Expiries expiries MRD_GUARDED_BY(mutex);
  // Leases and endpoints that were taken out and that a peer may reach still. Nobody is told that
  // they have ended before they have.
  absl::btree_set<uint64_t> being_ended MRD_GUARDED_BY(mutex);
  RequestLog requests MRD_GUARDED_BY(mutex);
  std::map<uint64_t, std::shared_ptr<Endpoint>> endpoints MRD_GUARDED_BY(mutex);
  // Connections that are being put into the store.
  std::map<uint64_t, BeingKept> being_kept MRD_GUARDED_BY(mutex);
};

using SessionRef = std::shared_ptr<Session>;

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_SESSION_H_
