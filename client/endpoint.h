// Endpoints: connections (rdma_cm ids) that the daemon owns on the session's behalf, over which
// peers read and write the session's regions with no CPU of this host. Made by Client::Listen and
// Client::Connect. They are passive: this process posts no work on them.
//
// A Listener or Endpoint owns its endpoint in the daemon: destroying it disconnects, best effort.
// It keeps the session alive.
//
// Threads: all members but moving and destroying may be called at once from several.
#ifndef MRD_CLIENT_ENDPOINT_H_
#define MRD_CLIENT_ENDPOINT_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mrd/v1/endpoint.pb.h"

namespace mrd {

namespace internal {
class EndpointState;
class Session;
}  // namespace internal

// One connection.
class Endpoint final {
 public:
  Endpoint(Endpoint&&) noexcept;
  Endpoint& operator=(Endpoint&&) noexcept;
  ~Endpoint();

  uint64_t endpoint_id() const;

  // As it was when the connection was made: device, generation, addresses, ports, queue pair
  // number.
  const v1::Endpoint& info() const;

  // What the peer sent with its request or acceptance; verbs may have padded it with zeros. See
  // DecodeRemoteRegions().
  const std::string& peer_private_data() const;

  // CONNECTED, or DISCONNECTED once the peer has left or failed; asks the daemon. An AttachEvent
  // ENDPOINT_ENDED tells the same without being asked.
  absl::StatusOr<v1::Endpoint::State> State() const;

  // When it returns OK, the peer reaches nothing over it any more. Again: OK, nothing happens.
  absl::Status Disconnect() const;

 private:
  friend class Client;
  friend class Listener;
  explicit Endpoint(std::unique_ptr<internal::EndpointState> state);

  std::unique_ptr<internal::EndpointState> state_;
};

// A listening endpoint.
class Listener final {
 public:
  Listener(Listener&&) noexcept;
  Listener& operator=(Listener&&) noexcept;
  ~Listener();

  // Address, port (which the daemon may have chosen) and device (empty: every one).
  const v1::Endpoint& info() const;

  // Takes the next connection request and accepts it; returns when the connection stands.
  // `private_data` goes to the peer, at most 196 bytes. Nobody came within `wait` (at most an
  // hour): DEADLINE_EXCEEDED, reason WAIT_ENDED. Listener closed meanwhile, or lost with its
  // session: NOT_FOUND, ENDPOINT_UNKNOWN. UNAVAILABLE without a reason: the daemon was restarted,
  // and a connection may have been accepted or not (Client::ListEndpoints); a listener of a session
  // that goes on listens again, and may be called again.
  absl::StatusOr<Endpoint> Accept(std::string_view private_data,
                                  std::chrono::milliseconds wait = std::chrono::hours(1)) const;

  // Stops listening; waiting Accepts fail: the way to wake them from another thread. Accepted
  // connections stand. Again: OK, nothing happens.
  absl::Status Close() const;

 private:
  friend class Client;
  explicit Listener(std::unique_ptr<internal::EndpointState> state);

  std::unique_ptr<internal::EndpointState> state_;
};

}  // namespace mrd

#endif  // MRD_CLIENT_ENDPOINT_H_
