// One connection to the attach socket: the protocol of proto/mrd/v1/attach.proto, and the session's
// life.
#ifndef MRD_DAEMON_IPC_ATTACH_CONNECTION_H_
#define MRD_DAEMON_IPC_ATTACH_CONNECTION_H_

#include <systemd/sd-event.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "daemon/broker/broker.h"
#include "daemon/ipc/event.h"
#include "daemon/ipc/packet.h"
#include "daemon/ipc/peer.h"
#include "daemon/ipc/sparse_warnings.h"
#include "daemon/mutex.h"
#include "daemon/unique_fd.h"
#include "mrd/v1/attach.pb.h"

namespace mrd::ipc {

struct AttachOptions {
  bool admin = false;
  bool peer_pidfd = true;          // Use SO_PEERPIDFD where the kernel has it.
  uint32_t max_message_bytes = 0;  // Of a gRPC request, for the welcome.
  // How long after a restart of the daemon sessions can be attached again; zero: never.
  std::chrono::seconds resume_within{0};
};

class AttachConnection;

// Connections whose clients did not read, and lost an event by it. Thread-safe.
class LostEvents {
 public:
  void Add(std::weak_ptr<AttachConnection> connection);
  // Tells those that have room for it now. Called about every second.
  void Tell();

 private:
  Mutex mutex_;
  std::vector<std::weak_ptr<AttachConnection>> connections_ MRD_GUARDED_BY(mutex_);
};

// Main thread, but for what Link promises to any thread. Shared with the session, which it outlives
// or not.
class AttachConnection : public broker::Link,
                         public std::enable_shared_from_this<AttachConnection> {
 public:
  // `user`: to whom it counts, see policy::Match. `attached` is called once, in the main loop, when
  // it has a session. `closed` is called once, in the main loop, when the connection is over; it
  // drops the connection from its table.
  AttachConnection(sd_event* loop, broker::Broker& broker, AttachOptions options,
                   SparseWarnings& warnings, LostEvents& lost_events, UniqueFd socket, Peer peer,
                   uint32_t user, std::function<void()> attached,
                   std::function<void(AttachConnection*)> closed);
  ~AttachConnection() override;

  // Takes packets from now on. False: it cannot, and is to be closed.
  bool Start();
  // Ends the connection and its session, for this reason where its own protocol gave none.
  void Close(broker::SessionEnd how = broker::SessionEnd::kHangUp);
  uint32_t user() const { return user_; }
  // Whether it has, or had, a session.
  bool attached() const { return was_attached_; }

  // Link.
  void Drain() override MRD_EXCLUDES(mutex_);
  void Send(const broker::Event& event) override;
  void HangUp() override;

  // That events were lost. False: there is no room for it yet.
  bool TellLost() MRD_EXCLUDES(send_mutex_);

 private:
  enum State { kHello, kChallenged, kAttached };

  void OnReady(uint32_t events);
  // False: the peer has gone or has broken the protocol. `most` packets at once.
  bool ReceiveLocked(int most) MRD_REQUIRES(mutex_);
  bool Handle(Packet& packet) MRD_REQUIRES(mutex_);
  bool HandleHello(const v1::AttachHello& hello, Packet& packet) MRD_REQUIRES(mutex_);
  bool HandleAnswer(const v1::AttachAnswer& answer, const Packet& packet) MRD_REQUIRES(mutex_);
  bool HandleBuffers(const v1::PassBuffers& pass, Packet& packet) MRD_REQUIRES(mutex_);
  bool Challenge() MRD_REQUIRES(mutex_);
  bool Admit() MRD_REQUIRES(mutex_);
  // Its session shows it a moment later, or never: see ReadCommandLine.
  void ReadLater(UniqueFd command_line) MRD_REQUIRES(mutex_);
  bool Refuse(const absl::Status& status);
  void Dispose(Packet& packet);
  // Of something that ends the connection: the peer broke the protocol.
  void Warn(const std::string& what, v1::Reason reason = v1::REASON_UNSPECIFIED)
      MRD_REQUIRES(mutex_);

  sd_event* const loop_;
  broker::Broker& broker_;
  const AttachOptions options_;
  SparseWarnings& warnings_;
  LostEvents& lost_events_;
  // Outlives the broker, as this may.
  memory::Disposer disposer_;
  UniqueFd socket_;
  const std::function<void()> attached_;
  const std::function<void(AttachConnection*)> closed_;
  const uid_t uid_;
  const uint32_t user_;
  bool was_attached_ = false;
  EventSource readable_;
  EventSource death_;
  EventSource too_late_;  // For the hello and the answer.

  Mutex mutex_;  // "attach socket" of daemon/mutex.h.
  State state_ MRD_GUARDED_BY(mutex_) = kHello;
  Peer peer_ MRD_GUARDED_BY(mutex_);
  std::string name_ MRD_GUARDED_BY(mutex_);
  std::string token_ MRD_GUARDED_BY(mutex_);  // Of the session to be attached again.
  std::string nonce_ MRD_GUARDED_BY(mutex_);
  bool clients_pidfd_ MRD_GUARDED_BY(mutex_) = false;
  bool broken_ MRD_GUARDED_BY(mutex_) = false;  // The protocol, by the peer.
  broker::SessionRef session_ MRD_GUARDED_BY(mutex_);
  // The first packet of all: who waits for it takes an event for another protocol. An event of
  // before, for the broker knows the session already, is lost, and the client is told so after it.
  bool Welcome(const v1::DaemonPacket& packet) MRD_EXCLUDES(send_mutex_);
  void NoteLost() MRD_EXCLUDES(send_mutex_);
  bool SendLocked(v1::DaemonPacket& packet) MRD_REQUIRES(send_mutex_);
  bool TellLostLocked() MRD_REQUIRES(send_mutex_);

  bool welcomed_ MRD_GUARDED_BY(send_mutex_) = false;
  uint64_t sequence_ MRD_GUARDED_BY(send_mutex_) = 0;  // Of the last event.
  bool lost_ MRD_GUARDED_BY(send_mutex_) = false;      // Some of them, and the client is not told.
  Mutex send_mutex_;  // Events go out in the order of their numbers.
};

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_ATTACH_CONNECTION_H_
