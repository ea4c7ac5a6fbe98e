// What the daemon tells a session, and the connection over which it does.
#ifndef MRD_DAEMON_BROKER_EVENT_H_
#define MRD_DAEMON_BROKER_EVENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/mutex.h"
#include "mrd/v1/attach.pb.h"

namespace mrd::broker {

// How far a long registration has come, over all its devices: a range on two of them is two.
struct Progress {
  std::string request_id = {};
  uint64_t bytes_total = 0;
  uint64_t ranges_total = 0;
  uint64_t bytes_mapped = 0;  // By the daemon, on the way to being pinned.
  uint64_t bytes_pinned = 0;
  uint64_t ranges_pinned = 0;
};

// Something that a session should know and did not ask for.
struct Event {
  v1::AttachEvent::EventKind kind;
  v1::AttachEvent::Cause cause = v1::AttachEvent::CAUSE_UNSPECIFIED;
  std::vector<uint64_t> lease_ids = {};
  std::vector<uint64_t> endpoint_ids = {};
  std::string message = {};
  std::string device = {};
  uint64_t generation = 0;  // Of the device, for LEAVE_GENERATION.
  std::optional<Progress> progress = {};
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

// The connection that a session has at the moment: none between a restart of the daemon and the
// client's return. What is sent meanwhile is lost; the client is told that something was.
class SessionLink final : public Link {
 public:
  explicit SessionLink(std::shared_ptr<Link> link) : link_(std::move(link)) {}

  void Set(std::shared_ptr<Link> link) {
    MutexLock lock(mutex_);
    link_ = std::move(link);
  }
  void Drain() override {
    if (const auto link = now()) link->Drain();
  }
  void Send(const Event& event) override {
    if (const auto link = now()) link->Send(event);
  }
  void HangUp() override {
    if (const auto link = now()) link->HangUp();
  }

 private:
  std::shared_ptr<Link> now() {
    MutexLock lock(mutex_);
    return link_;
  }

  Mutex mutex_;
  std::shared_ptr<Link> link_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_EVENT_H_
