// Endpoints of sessions: made, booked, and ended with their session.
#ifndef MRD_DAEMON_BROKER_ENDPOINTS_H_
#define MRD_DAEMON_BROKER_ENDPOINTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/mutex.h"
#include "mrd/v1/endpoint.pb.h"

namespace mrd::broker {

struct Endpoint {
  uint64_t id = 0;
  fabric::ConnectionInfo info;
  // Of its session's lock: CONNECTED becomes DISCONNECTED when the peer leaves.
  v1::Endpoint::State state = v1::Endpoint::STATE_UNSPECIFIED;
  // One of the two. A listener is shared with the Accept calls that are being handed to it.
  std::shared_ptr<fabric::Listener> listener;
  NamedDomainRef named;  // Of a listener: where its connections are to lie. Null: the private one.
  std::unique_ptr<fabric::Connection> connection;
  uint32_t backlog = 0;  // Of a listener.
  bool adopted = false;  // A connection of before a restart of the daemon.
  // Last, so that they end first: what has no record any more may end.
  ledger::StoredFd stored;  // Of a connection.
  ledger::Record record;    // None: it does not survive the daemon.
};

struct EndpointView {
  uint64_t id;
  v1::Endpoint::State state;
  fabric::ConnectionInfo info;
  bool survives;             // A restart of the daemon.
  std::string private_data;  // The peer's; only of a connection just made.
};

struct EndpointPage {
  std::vector<std::pair<uint64_t, EndpointView>> endpoints;  // With the id of its session.
  uint64_t next = 0;                                         // 0: no more.
};

// What to do when the peer of a connection has left; see fabric::ConnectionSpec::left. The broker
// outlives the connection.
std::function<void(bool error)> WhenPeerLeaves(Broker& broker, const SessionRef& session,
                                               uint64_t id);

// Called exactly once, from any thread.
using EndpointDone = absl::AnyInvocable<void(absl::StatusOr<EndpointView>)>;

struct ListenWish {
  std::string address;
  uint32_t port;
  int backlog;
  std::string domain;  // A named one; empty: the session's private one on each device.
};

// How a connection is to be made.
struct ConnectionWish {
  std::string private_data;
  fabric::Deadline deadline;
  std::string domain = {};       // Of a Connect: as ListenWish::domain.
  std::function<bool()> wanted;  // Whether the caller still waits.
};

// Thread-safe; the broker outlives it.
class Endpoints {
 public:
  // Attempts to connect of one uid at one time, those included whose wait has ended while the
  // kernel works on them. A host that does not answer keeps each for minutes on some devices.
  static constexpr uint64_t kMostConnects = fabric::kMostConnects / 8;

  explicit Endpoints(Broker& broker) : broker_(broker) {}

  // Errors: those of the fabric, QUOTA_ENDPOINTS, BUSY, DOMAIN_UNKNOWN, SESSION_UNKNOWN, DRAINING.
  void Listen(const SessionRef& session, ListenWish wish, EndpointDone done);
  // An Accept or Connect that waits counts as an endpoint; so does one that has failed, for as long
  // as the kernel works on it still. Errors: those of the fabric, ENDPOINT_UNKNOWN, ENDPOINT_STATE,
  // QUOTA_ENDPOINTS, SESSION_UNKNOWN; Connect: BUSY beyond kMostConnects.
  void Accept(const SessionRef& session, uint64_t listener_id, ConnectionWish wish,
              EndpointDone done);
  void Connect(const SessionRef& session, const std::string& address, uint32_t port,
               const std::string& source, ConnectionWish wish, EndpointDone done);
  // Errors: ENDPOINT_UNKNOWN.
  void Disconnect(const SessionRef& session, uint64_t id, Done done);
  std::vector<EndpointView> List(const SessionRef& session);
  // Those with a greater id than `after`, of this session, or of all where it is null.
  EndpointPage ListAll(const SessionRef& session, uint64_t after, size_t most);

 private:
  class Attempt;

  absl::StatusOr<Work> Book(const SessionRef& session);
  void Unbook(const SessionRef& session);
  // Gives the endpoint to its session. It is moved: the last holder ends it, which may block, and
  // the callers of this must not. Errors: SESSION_UNKNOWN, DEVICE_REMOVED; then the endpoint stays
  // the caller's to end.
  absl::Status Keep(const SessionRef& session, std::shared_ptr<Endpoint>& endpoint);
  // Has it survive the daemon, where that can be: before it is given to its session. May block.
  void WriteDown(const SessionRef& session, Endpoint& endpoint, const NamedDomain* named);
  // Whether what it lies in survives. May block.
  absl::Status CheckKept(const SessionRef& session, const Endpoint& endpoint);
  fabric::ConnectionSpec SpecFor(const SessionRef& session,
                                 const std::shared_ptr<Endpoint>& endpoint, NamedDomainRef named,
                                 ConnectionWish wish, std::shared_ptr<Attempt> attempt);
  fabric::EstablishedCallback OnEstablished(std::shared_ptr<Attempt> attempt,
                                            std::shared_ptr<Endpoint> endpoint,
                                            NamedDomainRef named, EndpointDone done);
  // Of an attempt that has failed. A connection's end may block, and waits for the fabric's thread,
  // which may be the caller's: elsewhere.
  void Refuse(std::shared_ptr<Attempt> attempt, std::shared_ptr<Endpoint> endpoint,
              absl::Status refusal, EndpointDone done);
  void Established(std::shared_ptr<Attempt> attempt, std::shared_ptr<Endpoint> endpoint,
                   EndpointView view, EndpointDone done);
  absl::Status BeginConnect(uint32_t uid) MRD_EXCLUDES(mutex_);
  void EndConnect(uint32_t uid) MRD_EXCLUDES(mutex_);

  Broker& broker_;
  Mutex mutex_;
  std::unordered_map<uint32_t, uint64_t> connects_ MRD_GUARDED_BY(mutex_);  // By uid; none is 0.
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_ENDPOINTS_H_
