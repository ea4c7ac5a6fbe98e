#include "client/region.h"

#include <utility>

#include "client/buffer_state.h"
#include "mrd/v1/status.h"

namespace mrd {

Region::Region(Region&& other) noexcept
    : buffer_(std::move(other.buffer_)),
      lease_id_(std::exchange(other.lease_id_, 0)),
      addr_(std::exchange(other.addr_, 0)),
      length_(std::exchange(other.length_, 0)),
      ttl_(std::exchange(other.ttl_, {})),
      keys_(std::move(other.keys_)) {
  other.keys_.clear();
}

Region& Region::operator=(Region&& other) noexcept {
  if (this == &other) return *this;
  Deregister().IgnoreError();
  buffer_ = std::move(other.buffer_);
  lease_id_ = std::exchange(other.lease_id_, 0);
  addr_ = std::exchange(other.addr_, 0);
  length_ = std::exchange(other.length_, 0);
  ttl_ = std::exchange(other.ttl_, {});
  keys_ = std::move(other.keys_);
  other.keys_.clear();
  return *this;
}

Region::~Region() { Deregister().IgnoreError(); }

const RegionKey* Region::key(std::string_view device) const {
  for (const RegionKey& key : keys_) {
    if (key.device == device) return &key;
  }
  return nullptr;
}

absl::Status Region::Deregister() {
  if (lease_id_ == 0) return absl::OkStatus();
  internal::Session& session = *buffer_->session();
  v1::DeregisterRequest request;
  request.add_lease_ids(lease_id_);
  absl::Status status = session.rpc().Deregister(request, session.call_timeout());
  if (status.ok() || ReasonOf(status) == v1::LEASE_UNKNOWN) Clear();
  return status;
}

void Region::Clear() {
  lease_id_ = 0;
  addr_ = 0;
  length_ = 0;
  ttl_ = {};
  keys_.clear();
  buffer_.reset();
}

}  // namespace mrd
