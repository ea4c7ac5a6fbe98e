// An endpoint in the daemon that this process owns. Thread-safe.
#ifndef MRD_CLIENT_ENDPOINT_STATE_H_
#define MRD_CLIENT_ENDPOINT_STATE_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "client/session.h"
#include "mrd/v1/endpoint.pb.h"
#include "mrd/v1/status.h"

namespace mrd::internal {

// How much longer than its wait a call may take: for the way there and back.
inline constexpr std::chrono::seconds kWaitSlack(10);

class EndpointState final {
 public:
  // `domain`: the named one that it lies in; empty: the private one.
  EndpointState(std::shared_ptr<Session> session, v1::Endpoint info, std::string private_data,
                std::string domain)
      : session_(std::move(session)),
        info_(std::move(info)),
        private_data_(std::move(private_data)),
        domain_(std::move(domain)),
        epoch_(session_->state().epoch()) {}
  ~EndpointState() {
    if (!session_->state().Check().ok()) return;
    // Who destroys it does not wait for a daemon that is away.
    const absl::Status ended = Disconnect(Rpc::Gap::kFail);
    if (Rpc::DaemonIsAway(ended)) session_->LeaveEndpoint(info_.endpoint_id());
  }
  EndpointState(const EndpointState&) = delete;
  EndpointState& operator=(const EndpointState&) = delete;

  const std::shared_ptr<Session>& session() const { return session_; }
  const v1::Endpoint& info() const { return info_; }
  const std::string& private_data() const { return private_data_; }
  const std::string& domain() const { return domain_; }

  // Not OK: it has ended, with the session that it was made in.
  absl::Status Check() const {
    if (absl::Status usable = session_->state().Check(); !usable.ok()) return usable;
    if (session_->regions().InSession(epoch_)) return absl::OkStatus();
    return MakeError(v1::ENDPOINT_UNKNOWN,
                     "endpoint " + std::to_string(info_.endpoint_id()) +
                         " has ended: the session was lost with the daemon, and restored",
                     {.advice = "Listen or connect anew."});
  }

  absl::Status Disconnect(Rpc::Gap gap = Rpc::Gap::kWait) {
    if (ended_.load()) return absl::OkStatus();
    if (absl::Status there = Check(); !there.ok()) return there;
    v1::DisconnectRequest request;
    request.set_endpoint_id(info_.endpoint_id());
    absl::Status status = session_->rpc().Disconnect(request, session_->call_timeout(), gap);
    if (status.ok()) ended_.store(true);
    return status;
  }

 private:
  const std::shared_ptr<Session> session_;
  const v1::Endpoint info_;
  const std::string private_data_;
  const std::string domain_;
  const uint64_t epoch_;  // Not before the one that it was made in, nor in a later session.
  std::atomic<bool> ended_ = false;
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_ENDPOINT_STATE_H_
