#include "client/mrctl/peers.h"

#include <chrono>
#include <optional>
#include <utility>

#include "client/mrctl/units.h"
#include "mrd/v1/status.h"

namespace mrctl {
namespace {

// For the keys that peers are to be given after a restart of the daemon.
constexpr std::chrono::seconds kKeysPatience{3};

}  // namespace

void Peers::Say(const mrd::v1::Endpoint& endpoint, const std::string& what) const {
  Note(options_,
       "peer " + FormatHostPort(endpoint.peer_address(), endpoint.peer_port()) + " " + what);
}

void Peers::Start(const mrd::Listener* listener, std::string private_data) {
  listener_ = listener;
  private_data_ = std::move(private_data);
  thread_ = std::thread([this, listener] { AcceptLoop(listener); });
}

std::set<uint64_t> Peers::Connected() const {
  std::set<uint64_t> ids;
  std::lock_guard lock(mutex_);
  for (const auto& [id, endpoint] : connected_) ids.insert(id);
  return ids;
}

void Peers::Restarted(const std::set<uint64_t>& left, std::string private_data) {
  for (const uint64_t id : left) Drop(id);
  std::lock_guard lock(mutex_);
  private_data_ = std::move(private_data);
  ++restarts_;
  changed_.notify_all();
}

void Peers::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  // Makes the waiting Accept return. Once: the listener may be gone when this is destroyed.
  if (const mrd::Listener* const listener = std::exchange(listener_, nullptr)) {
    listener->Close().IgnoreError();
  }
  if (thread_.joinable()) thread_.join();
  std::map<uint64_t, mrd::Endpoint> connected;
  {
    std::lock_guard lock(mutex_);
    connected.swap(connected_);
  }
}

void Peers::OnEvent(const mrd::v1::AttachEvent& event) {
  if (event.kind() != mrd::v1::AttachEvent::ENDPOINT_ENDED) return;
  for (const uint64_t id : event.endpoint_ids()) Drop(id);
}

void Peers::Drop(uint64_t id) {
  std::optional<mrd::Endpoint> ended;  // Destroyed, which is a call, without the lock.
  std::lock_guard lock(mutex_);
  const auto it = connected_.find(id);
  if (it == connected_.end()) {
    ended_early_.insert(id);
    return;
  }
  ended = std::move(it->second);
  connected_.erase(it);
  Say(ended->info(), "left");
}

void Peers::AcceptLoop(const mrd::Listener* listener) {
  std::unique_lock lock(mutex_);
  for (bool asked_again = false;;) {
    if (stopping_) return;
    const std::string private_data = private_data_;
    const int restarts = restarts_;
    lock.unlock();
    auto endpoint = listener->Accept(private_data);
    lock.lock();
    if (stopping_) return;
    if (endpoint.ok()) {
      Say(endpoint->info(), "connected");
      const uint64_t id = endpoint->endpoint_id();
      if (ended_early_.erase(id) == 0) {
        connected_.emplace(id, std::move(*endpoint));
      } else {
        Say(endpoint->info(), "left");
      }
      continue;
    }
    const mrd::v1::Reason reason = mrd::ReasonOf(endpoint.status());
    // The daemon was restarted under it: peers are told keys of after that.
    if (reason == mrd::v1::REASON_UNSPECIFIED && absl::IsUnavailable(endpoint.status())) {
      changed_.wait_for(lock, kKeysPatience, [&] { return stopping_ || restarts_ != restarts; });
      continue;
    }
    // A daemon that ends takes its listeners first: asked again, it says so.
    if (reason == mrd::v1::ENDPOINT_UNKNOWN && !asked_again) {
      asked_again = true;
      changed_.wait_for(lock, std::chrono::milliseconds(500), [&] { return stopping_; });
      continue;
    }
    if (reason == mrd::v1::WAIT_ENDED) continue;
    if (reason == mrd::v1::SESSION_UNKNOWN || reason == mrd::v1::DRAINING)
      return;  // The command tells of the daemon's end.
    Fail(options_, endpoint.status());
    // One peer that failed to connect is not the listener's end.
    if (reason != mrd::v1::CONNECTION_FAILED && reason != mrd::v1::DEVICE_ERROR) return;
    changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return stopping_; });
  }
}

}  // namespace mrctl
