#include "client/region.h"

#include <utility>

#include "client/buffer_state.h"
#include "client/endpoint.h"
#include "client/region_state.h"
#include "mrd/v1/status.h"

namespace mrd {

Region::Region(Region&& other) noexcept
    : buffer_(std::move(other.buffer_)),
      state_(std::move(other.state_)),
      addr_(std::exchange(other.addr_, 0)),
      length_(std::exchange(other.length_, 0)) {}

Region& Region::operator=(Region&& other) noexcept {
  if (this == &other) return *this;
  Leave();
  buffer_ = std::move(other.buffer_);
  state_ = std::move(other.state_);
  addr_ = std::exchange(other.addr_, 0);
  length_ = std::exchange(other.length_, 0);
  return *this;
}

Region::~Region() { Leave(); }

uint64_t Region::lease_id() const { return state_ ? state_->lease_id() : 0; }
uint32_t Region::lkey() const { return state_ ? state_->lkey() : 0; }
uint32_t Region::rkey() const { return state_ ? state_->rkey() : 0; }

std::chrono::nanoseconds Region::ttl() const {
  return state_ ? state_->ttl() : std::chrono::nanoseconds(0);
}

std::vector<RegionKey> Region::keys() const {
  return state_ ? state_->keys() : std::vector<RegionKey>();
}

std::optional<RegionKey> Region::key(std::string_view device) const {
  for (RegionKey& key : keys()) {
    if (key.device == device) return std::move(key);
  }
  return std::nullopt;
}

std::optional<RegionKey> Region::KeyIn(std::string_view device, uint64_t generation) const {
  for (RegionKey& key : keys()) {
    if (key.device == device && key.generation == generation) return std::move(key);
  }
  return std::nullopt;
}

std::optional<RegionKey> Region::KeyFor(const Endpoint& endpoint) const {
  return KeyIn(endpoint.info().device(), endpoint.info().generation());
}

absl::Status Region::Deregister() {
  if (!state_) return absl::OkStatus();
  internal::Session& session = *buffer_->session();
  if (absl::Status usable = session.state().Check(); !usable.ok()) return usable;
  // From here on its lease is what it is, over a restart of the daemon too.
  session.regions().Withdraw(*state_);
  v1::DeregisterRequest request;
  request.add_lease_ids(state_->lease_id());
  absl::Status status = session.rpc().Deregister(request, session.call_timeout());
  if (status.ok() || ReasonOf(status) == v1::LEASE_UNKNOWN) {
    Clear();
  } else {
    session.regions().Return(*state_);
  }
  return status;
}

void Region::Leave() {
  if (!state_) return;
  internal::Session& session = *buffer_->session();
  // A forked child's copy is nobody's, and locks in it may stay locked for ever.
  if (!session.state().Forked()) {
    session.regions().Withdraw(*state_);
    v1::DeregisterRequest request;
    request.add_lease_ids(state_->lease_id());
    const absl::Status ended =
        session.rpc().Deregister(request, session.call_timeout(), internal::Rpc::Gap::kFail);
    if (internal::Rpc::DaemonIsAway(ended)) session.LeaveLease(state_->lease_id());
  }
  Clear();
}

void Region::Clear() {
  addr_ = 0;
  length_ = 0;
  state_.reset();
  buffer_.reset();
}

}  // namespace mrd
