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

namespace mrd::internal {

// How much longer than its wait a call may take: for the way there and back.
inline constexpr std::chrono::seconds kWaitSlack(10);

class EndpointState final {
 public:
  EndpointState(std::shared_ptr<Session> session, v1::Endpoint info, std::string private_data)
      : session_(std::move(session)),
        info_(std::move(info)),
        private_data_(std::move(private_data)) {}
  ~EndpointState() {
    if (session_->state().Check().ok()) Disconnect().IgnoreError();
  }
  EndpointState(const EndpointState&) = delete;
  EndpointState& operator=(const EndpointState&) = delete;

  const std::shared_ptr<Session>& session() const { return session_; }
  const v1::Endpoint& info() const { return info_; }
  const std::string& private_data() const { return private_data_; }

  absl::Status Disconnect() {
    if (ended_.load()) return absl::OkStatus();
    v1::DisconnectRequest request;
    request.set_endpoint_id(info_.endpoint_id());
    absl::Status status = session_->rpc().Disconnect(request, session_->call_timeout());
    if (status.ok()) ended_.store(true);
    return status;
  }

 private:
  const std::shared_ptr<Session> session_;
  const v1::Endpoint info_;
  const std::string private_data_;
  std::atomic<bool> ended_ = false;
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_ENDPOINT_STATE_H_
