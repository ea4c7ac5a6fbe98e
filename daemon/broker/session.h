// One attached client process and all that it holds.
#ifndef MRD_DAEMON_BROKER_SESSION_H_
#define MRD_DAEMON_BROKER_SESSION_H_

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "daemon/broker/lease.h"
#include "daemon/broker/registrar.h"
#include "daemon/broker/request_log.h"
#include "daemon/memory/buffer.h"
#include "daemon/mutex.h"
#include "mrd/v1/attach.pb.h"

namespace mrd::broker {

struct Endpoint;

// Who a session is, by the kernel's word.
struct Identity {
  pid_t pid = 0;  // 0: hidden by a pid namespace.
  uid_t uid = 0;
  gid_t gid = 0;
  bool admin = false;
  std::string comm;
  std::string death;  // How its end will be noticed: "pidfd", "pidfd of the client", "hang-up".
};

// Something that a session should know and did not ask for.
struct Event {
  v1::AttachEvent::EventKind kind;
  v1::AttachEvent::Cause cause = v1::AttachEvent::CAUSE_UNSPECIFIED;
  std::vector<uint64_t> lease_ids = {};
  std::vector<uint64_t> endpoint_ids = {};
  std::string message = {};
  std::string device = {};
};

// The session's connection, as the broker sees it. Thread-safe; outlives the session (shared).
class Link {
 public:
  virtual ~Link() = default;
  // Takes in what the client has sent and nobody has read yet.
  virtual void Drain() = 0;
  // Never blocks: a client that reads too slowly loses it, and sees a gap in the sequence.
  virtual void Send(const Event& event) = 0;
  // The session is over for a reason of the daemon's.
  virtual void HangUp() = 0;
};

// One buffer of a uid's, booked for as long as this lives.
class BookedBuffer {
 public:
  // Errors: QUOTA_BUFFERS.
  static absl::StatusOr<BookedBuffer> Make(Books& books, uid_t uid);
  BookedBuffer() = default;
  BookedBuffer(BookedBuffer&& other) noexcept
      : books_(std::exchange(other.books_, nullptr)), uid_(other.uid_) {}
  BookedBuffer& operator=(BookedBuffer&& other) noexcept {
    std::swap(books_, other.books_);
    std::swap(uid_, other.uid_);
    return *this;
  }
  ~BookedBuffer();

 private:
  Books* books_ = nullptr;
  uid_t uid_ = 0;
};

// What a session passed under an id. Its end may take long, with the pages of the file: on a thread
// of the registrar only.
struct BufferSlot {
  BookedBuffer booked;
  std::shared_ptr<memory::Buffer> buffer;  // Null: refused.
  absl::Status refusal;
};

struct SessionView {
  uint64_t id;
  Identity identity;
  std::string name;
  std::chrono::system_clock::time_point attached;
  Amounts held;
  size_t buffers;
  size_t leases;
};

// Thread-safe by its mutex. State is public to the parts of the broker, which take the lock.
class Session {
 public:
  Session(uint64_t id, std::string token, Identity identity, std::string name,
          std::shared_ptr<Link> link)
      : id(id),
        token(std::move(token)),
        identity(std::move(identity)),
        name(std::move(name)),
        link(std::move(link)),
        attached(std::chrono::system_clock::now()) {}

  SessionView View();
  Owner owner() const { return {id, identity.uid}; }

  const uint64_t id;
  const std::string token;
  const Identity identity;
  const std::string name;
  const std::shared_ptr<Link> link;
  const std::chrono::system_clock::time_point attached;
  std::atomic<size_t> calls{0};  // In flight.

  Mutex mutex;
  // Set once, before anything is taken out: whoever adds something looks at it under the same lock.
  bool ending MRD_GUARDED_BY(mutex) = false;
  // Calls that hold something of it, and its teardown. When the last of them is over it holds
  // nothing any more.
  size_t pending MRD_GUARDED_BY(mutex) = 0;
  Amounts held MRD_GUARDED_BY(mutex);  // What is booked for it, of regions, bytes and endpoints.
  absl::flat_hash_map<uint64_t, BufferSlot> buffers MRD_GUARDED_BY(mutex);
  // Of a buffer: the next one is mostly the same, and shares it.
  absl::Status last_refusal MRD_GUARDED_BY(mutex);
  std::vector<DomainSlot> domains MRD_GUARDED_BY(mutex);  // One a device that it used.
  absl::btree_map<uint64_t, std::unique_ptr<Lease>> leases MRD_GUARDED_BY(mutex);
  RequestLog requests MRD_GUARDED_BY(mutex);
  std::map<uint64_t, std::shared_ptr<Endpoint>> endpoints MRD_GUARDED_BY(mutex);
};

using SessionRef = std::shared_ptr<Session>;

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_SESSION_H_
