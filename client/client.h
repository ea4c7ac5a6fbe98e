// Client: this process's session with mrd, the memory-region daemon. Everything starts here:
//
//   auto client = mrd::Client::Attach({.name = "example"});
//   auto buffer = client->CreateBuffer(1 << 20);
//   auto region = client->RegWrite(*buffer);
//   // region->addr(), region->rkey(): what a peer needs to write into buffer->data().
//
// The session lives until the Client and all buffers, regions and endpoints made by it are gone, or
// until Detach(). It ends, with all of them, when the process dies.
//
// When the daemon is restarted, calls wait for it, within their timeouts, and are made again; only
// Listen, Accept, Connect and RevokeLeases, under which a connection broke, return UNAVAILABLE
// without a reason and say that nobody knows whether they had an effect. What becomes of the
// session depends on the daemon:
// - A service with a store of descriptors (AttachWelcome.resume_within is set) keeps it: the
// library
//   attaches again unseen, and session, leases, keys and connections are what they were.
//   Connections made afterwards lie in a new generation of their device and need keys of their own:
//   Connect and Accept add them to the session's regions (Region::KeyFor); AddKeys() does it
//   before, for what private data is to tell a peer.
// - Any other daemon takes it along. The library attaches anew and registers again, under new
// leases
//   and keys, or tells, as AttachOptions::on_loss says. So it is where a store has lost the
//   session.
// A session that an admin revoked has ended for good, and so has one that for a minute finds no
// daemon, or is refused by it: AttachOptions::on_lost.
//
// Threads: all members but moving and destroying may be called at once from several.
//
// Fork: a child has no session. Every call in it fails with FAILED_PRECONDITION, and destroying
// what it inherited touches nothing of its parent's. Nor can it attach, since gRPC cannot be used
// on both sides of a fork: fork before the first Attach, or execute another program.
//
// Errors: absl::Status. mrd/v1/status.h reads what is beside the code: ReasonOf() of a refusal of
// the daemon's, DetailOf() with errno, limits and advice. A message can be shown to a person as it
// is. UNAVAILABLE without a reason: the daemon cannot be reached, or the connection broke under the
// call. SESSION_UNKNOWN: the session has ended.
#ifndef MRD_CLIENT_CLIENT_H_
#define MRD_CLIENT_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/buffer.h"
#include "client/endpoint.h"
#include "client/region.h"
#include "client/rekeyed.h"
#include "mrd/v1/admin.pb.h"
#include "mrd/v1/attach.pb.h"
#include "mrd/v1/device.pb.h"
#include "mrd/v1/domain.pb.h"
#include "mrd/v1/endpoint.pb.h"
#include "mrd/v1/registration.pb.h"
#include "mrd/v1/session.pb.h"

namespace mrd {

namespace internal {
class Session;
}

struct AttachOptions {
  // The directory of the daemon's sockets. Empty: $MRD_SOCKET_DIR, else /run/mrd. At most 95 bytes;
  // for an admin session 89.
  std::string socket_dir = {};
  // Attach as an admin, over DIR-admin/attach.sock: for the calls under "Admins".
  bool admin = false;
  // For people: what this client is. At most 64 bytes of printable UTF-8.
  std::string name = {};
  // For attaching, and for each packet on the attach socket later. Positive, as the next.
  std::chrono::milliseconds timeout = std::chrono::seconds(10);
  // For each call, retries included, that takes no wait of its own.
  std::chrono::milliseconds call_timeout = std::chrono::seconds(60);
  // The library renews leases that have a ttl (RegisterOptions::ttl) in the background, so that
  // they lapse only where this process is stopped or stuck. Without it, RenewLeases is up to the
  // caller.
  bool renew = true;
  // What becomes of a session that was lost with its daemon.
  OnLoss on_loss = OnLoss::kRestore;

  // Callbacks run on one thread of the library's, one at a time, in the order of what they tell.
  // They may use and destroy the client. While one runs no other does, and the daemon's events
  // wait, but the session is kept, over a restart of the daemon too.
  //
  // With each event (AttachEvent in attach.proto). Sequence numbers begin anew with each connection
  // to the daemon. EVENTS_LOST, the first event after a restart: list leases and endpoints anew.
  // LEAVE_GENERATION: the operator asks for connections made before a restart to be made anew; the
  // library only tells.
  std::function<void(const v1::AttachEvent&)> on_event = {};
  // Leases and keys have changed: the session was lost and restored, whether it had regions or not,
  // or regions got keys in a new generation. Regions say the same from before it is called. Not for
  // admins, whose sessions hold nothing.
  std::function<void(const Rekeyed&)> on_rekeyed = {};
  // Once, when the session has ended, with its regions, other than by Detach().
  std::function<void(const absl::Status&)> on_lost = {};
};

struct ListenOptions {
  // An IP address of a device; "0.0.0.0", "::": of all. On fabric soft: empty or a loopback
  // address.
  std::string address = {};
  uint16_t port = 0;     // 0: the daemon chooses.
  uint32_t backlog = 0;  // Requests that may wait; at most 128. 0: 16.
  // Where accepted connections lie, one that OpenDomain opened: they reach the regions there.
  // Empty: the session's private domain.
  std::string domain = {};
};

struct DomainOptions {
  // Where there is none of this name: with what follows. Where there is one of another user's that
  // admits others than that: DOMAIN_FORBIDDEN. Not set: whatever there is, or DOMAIN_UNKNOWN.
  bool create = true;
  uint32_t mode = 0600;                // Who may open it, as of a file: 0600, 0660, 0606 or 0666.
  std::optional<uint32_t> group = {};  // A gid of this process's; nothing: its primary one.
};

struct ConnectOptions {
  std::string address = {};  // The peer's IP address.
  uint16_t port = 0;
  std::string source_address = {};  // An IP address of a device here. Empty: by the routing table.
  std::string private_data = {};    // For the peer: at most 56 bytes.
  std::chrono::milliseconds wait = std::chrono::minutes(1);  // Until it stands; at most a minute.
  std::string domain = {};                                   // Where it lies; see ListenOptions.
};

struct StatusOptions {
  // What of this user's a restart of the daemon would leave: GetStatusResponse.survival. Not set by
  // daemons that do not know of it.
  bool survival = false;
};

class Client final {
 public:
  // Attaches this process. Errors name the path tried, why it failed and what to do.
  static absl::StatusOr<Client> Attach(AttachOptions options = {});

  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

  // Ends the session now, with all that was made in it: their destructors do nothing more, and
  // calls fail with SESSION_UNKNOWN. No callback begins any more; one may run still. Memory stays
  // mapped as long as its Buffer and Regions live. Waits for nobody: where the daemon is away it
  // ends the session when it is back and nobody has attached again within
  // AttachWelcome.resume_within.
  void Detach();

  // What the daemon said on attaching last: session id, versions, fabric, limits. Without the
  // token. The id is another one where the session was lost and restored.
  v1::AttachWelcome welcome() const;
  uint64_t session_id() const;

  // OK as long as the session can be used, or may be again when the daemon is back; else what ended
  // it. Asks nobody.
  absl::Status SessionStatus() const;

  // Memory. ------------------------------------------------------------------

  // Makes a buffer of `size` bytes: a sealed memfd, zeroed, with every page present, mapped
  // read-write at an address that every device can register. INVALID_ARGUMENT: size 0 or absurd,
  // name too long; RESOURCE_EXHAUSTED: no memory, no huge pages (and how to get them), no
  // descriptors.
  absl::StatusOr<Buffer> CreateBuffer(uint64_t size, BufferOptions options = {}) const;

  // Takes memory of the caller's: `fd` mapped at `addr`, `size` bytes, MAP_SHARED (with MAP_PRIVATE
  // peers would see other pages than this process): ADDRESS_UNUSABLE where it is not. The library
  // duplicates the descriptor; the caller keeps its own and the mapping, which must outlive buffer
  // and regions. A device whose Device.any_address is false takes it only at addresses that the
  // daemon keeps free (0x650000000000-0x6fffffffffff): let the library map it.
  absl::StatusOr<Buffer> AdoptBuffer(int fd, void* addr, uint64_t size,
                                     AdoptOptions options = {}) const;

  // The same, mapped by the library: from options.offset to the end of the object.
  absl::StatusOr<Buffer> AdoptBuffer(int fd, AdoptOptions options = {}) const;

  // Registration. ------------------------------------------------------------

  // Registers `ranges` (at most AttachLimits.max_ranges_per_call) in one call: all of them or none.
  // The regions come in the order of the ranges. Refusals: error.proto; QUOTA_BUFFERS before
  // anything is sent where the session would hold more than AttachLimits.max_buffers. After
  // DEADLINE_EXCEEDED or UNAVAILABLE without a reason nobody knows whether it was done; ListLeases
  // tells.
  absl::StatusOr<std::vector<Region>> Register(const RegisterOptions& options,
                                               std::span<const Range> ranges) const;

  // rdma_reg_msgs(3): to send from and receive into (LOCAL_WRITE). On the first active device.
  absl::StatusOr<Region> RegMsgs(const Range& range) const;
  // rdma_reg_read(3): peers may read it (LOCAL_WRITE | REMOTE_READ).
  absl::StatusOr<Region> RegRead(const Range& range) const;
  // rdma_reg_write(3): peers may write it (LOCAL_WRITE | REMOTE_WRITE).
  absl::StatusOr<Region> RegWrite(const Range& range) const;

  // Deregisters all of them, AttachLimits.max_ranges_per_call a call. Empty ones are skipped. None
  // is a region afterwards; LEASE_UNKNOWN says that some had ended before (lapsed, revoked, their
  // device removed). On any other error those not yet done stay regions. REQUIRES: of this session.
  absl::Status Deregister(std::span<Region> regions) const;

  // Leases that have a ttl last the whole of it from now on: those of these ids or, with none, all.
  // LEASE_UNKNOWN: one has lapsed or ended, and none was renewed. Needed only without
  // AttachOptions::renew. Returns the shortest ttl of all leases; nothing where none has one.
  absl::StatusOr<std::optional<std::chrono::nanoseconds>> RenewLeases(
      std::span<const uint64_t> lease_ids = {}) const;

  absl::StatusOr<std::vector<v1::Lease>> ListLeases() const;

  // Registers all live regions in the newest generation of their devices too, under the same leases
  // and booked once more: needed before a peer is told keys for a connection that is yet to be made
  // after a restart of the daemon (AttachEvent EVENTS_LOST tells of one). Else Connect and Accept
  // do it. Returns those whose keys have changed. An error: some have got none, the others have; it
  // may be called again.
  absl::StatusOr<Rekeyed> AddKeys() const;

  // Named protection domains, shared with other sessions. -----------------------

  // This session is a member from now on, until CloseDomain or its end. Members use one another's
  // keys: each trusts all others. DOMAIN_FORBIDDEN: its owner, group and mode do not admit this
  // process; DOMAIN_UNKNOWN: there is none, and it was not to be made. Opening it again is no
  // error.
  absl::StatusOr<v1::Domain> OpenDomain(const std::string& name, DomainOptions options = {}) const;
  // Regions and endpoints in it stay. DOMAIN_UNKNOWN: it was no member.
  absl::Status CloseDomain(const std::string& name) const;
  // Those that this session may open.
  absl::StatusOr<std::vector<v1::Domain>> ListDomains() const;

  // Endpoints. ---------------------------------------------------------------
  //
  // Those of a session that was lost have ended, restored or not: calls on them say
  // ENDPOINT_UNKNOWN.

  absl::StatusOr<Listener> Listen(const ListenOptions& options) const;
  absl::StatusOr<Endpoint> Connect(const ConnectOptions& options) const;
  absl::StatusOr<std::vector<v1::Endpoint>> ListEndpoints() const;

  // What there is. -----------------------------------------------------------

  absl::StatusOr<std::vector<v1::Device>> ListDevices() const;
  absl::StatusOr<v1::GetStatusResponse> GetStatus(StatusOptions options = {}) const;

  // Admins: of all sessions. Others get POLICY_DENIED. -------------------------

  absl::StatusOr<std::vector<v1::Session>> ListSessions() const;
  // Of one session, or with 0 of all.
  absl::StatusOr<std::vector<v1::HeldLease>> ListAllLeases(uint64_t session_id = 0) const;
  absl::StatusOr<std::vector<v1::HeldEndpoint>> ListAllEndpoints(uint64_t session_id = 0) const;
  // The named ones.
  absl::StatusOr<std::vector<v1::MemberedDomain>> ListAllDomains() const;
  // The daemon's metrics, in the text format of Prometheus.
  absl::StatusOr<std::string> GetMetrics() const;

  // `reason`, here and below: at most 256 bytes of printable UTF-8, which the clients concerned are
  // told and the daemon logs.
  //
  // Ends leases of any sessions, at most AttachLimits.max_ranges_per_call: when it returns no
  // device reaches their regions. Returns how many. LEASE_UNKNOWN: one of them is none; nothing was
  // ended. After DEADLINE_EXCEEDED or UNAVAILABLE without a reason ListAllLeases tells what was.
  absl::StatusOr<uint64_t> RevokeLeases(std::span<const uint64_t> lease_ids,
                                        const std::string& reason) const;
  // Ends a session, not this one. What it holds ends after the call: ListSessions shows it as
  // `ending` until then. SESSION_UNKNOWN: there is none (SessionStatus() tells of one's own).
  absl::Status RevokeSession(uint64_t session_id, const std::string& reason) const;
  // The daemon takes no new sessions (but admins'), registrations, listeners and connections, and
  // tells its sessions; after `deadline`, where there is one, it ends those that are left.
  absl::StatusOr<v1::Drain> DrainDaemon(
      const std::string& reason,
      std::optional<std::chrono::nanoseconds> deadline = std::nullopt) const;
  // Takes that back.
  absl::Status UndrainDaemon() const;
  // What there is of each generation of each device, and of the store that keeps them.
  absl::StatusOr<v1::ListGenerationsResponse> ListGenerations() const;
  // Asks the sessions that have something in this generation to leave it; ends nothing. Returns how
  // many. GENERATION_UNKNOWN.
  absl::StatusOr<uint64_t> LeaveGeneration(const std::string& device, uint64_t generation,
                                           const std::string& reason) const;
  // As SIGHUP does. Returns how many rules are in force. POLICY_INVALID: the file is wrong, the
  // message says where, and the policy in force before stays.
  absl::StatusOr<uint32_t> ReloadPolicy() const;

 private:
  explicit Client(std::shared_ptr<internal::Session> session);

  absl::Status DeregisterPart(std::span<Region> part, absl::Status* ended) const;
  absl::StatusOr<Region> RegisterOne(v1::Access::Preset preset, const Range& range) const;
  absl::Status RegisterInto(const RegisterOptions& options, std::span<const Range> ranges,
                            Region* regions) const;

  std::shared_ptr<internal::Session> session_;
};

}  // namespace mrd

#endif  // MRD_CLIENT_CLIENT_H_
