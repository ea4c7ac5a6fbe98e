#include "client/region_state.h"

#include <utility>

namespace mrd::internal {

void RegionSpec::Fill(v1::RegisterRequest* request) const {
  for (const std::string& device : devices) request->add_devices(device);
  request->set_all_devices(all_devices);
  request->mutable_access()->set_preset(preset);
  for (const v1::AccessFlag flag : flags) request->mutable_access()->add_flags(flag);
  request->set_release_after(release_after);
  request->set_domain(domain);
  request->set_newest_only(newest_only);
  if (ttl.count() == 0) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(ttl);
  request->mutable_ttl()->set_seconds(seconds.count());
  request->mutable_ttl()->set_nanos(static_cast<int32_t>((ttl - seconds).count()));
}

void RegionState::Set(const v1::Lease& lease) {
  const std::chrono::nanoseconds ttl = std::chrono::seconds(lease.remaining().seconds()) +
                                       std::chrono::nanoseconds(lease.remaining().nanos());
  ttl_.store(ttl.count(), std::memory_order_release);
  SetKeys(lease);
  lease_id_.store(lease.lease_id(), std::memory_order_release);
}

void RegionState::SetKeys(const v1::Lease& lease) {
  absl::InlinedVector<RegionKey, 1> keys;
  keys.reserve(lease.keys_size());
  for (const v1::Key& key : lease.keys()) {
    keys.push_back({key.device(), key.generation(), key.lkey(), key.rkey()});
  }
  const uint64_t first =
      keys.empty() ? 0 : keys.front().lkey | static_cast<uint64_t>(keys.front().rkey) << 32;
  MutexLock lock(&mutex_);
  keys_ = std::move(keys);
  first_.store(first, std::memory_order_release);
}

std::vector<RegionKey> RegionState::keys() const {
  MutexLock lock(&mutex_);
  return {keys_.begin(), keys_.end()};
}

}  // namespace mrd::internal
