#include "client/region_registry.h"

#include <algorithm>
#include <chrono>
#include <unordered_set>

namespace mrd::internal {

bool RegionRegistry::Add(std::span<RegionState> regions, uint64_t epoch) {
  MutexLock lock(&mutex_);
  if (epoch < session_) return false;
  for (RegionState& region : regions) {
    region.index_ = regions_.size();
    regions_.push_back(&region);
  }
  return true;
}

void RegionRegistry::Withdraw(RegionState& region) {
  MutexLock lock(&mutex_);
  while (region.pins_ > 0) {
    unpinned_.WaitUntil(&mutex_, std::chrono::steady_clock::now() + std::chrono::hours(1));
  }
  if (region.index_ == RegionState::kNowhere) return;
  regions_.back()->index_ = region.index_;
  std::swap(regions_[region.index_], regions_.back());
  regions_.pop_back();
  region.index_ = RegionState::kNowhere;
  region.session_ = session_;
}

void RegionRegistry::Return(RegionState& region) {
  MutexLock lock(&mutex_);
  if (region.index_ != RegionState::kNowhere) return;
  region.ended_ |= region.session_ != session_;
  region.index_ = regions_.size();
  regions_.push_back(&region);
}

std::vector<RegionState*> RegionRegistry::BeginSession(uint64_t epoch) {
  {
    MutexLock lock(&mutex_);
    session_ = epoch;
  }
  return Pin(epoch, [](const RegionState&) { return true; });
}

std::vector<RegionState*> RegionRegistry::Pin(
    uint64_t epoch, const std::function<bool(const RegionState&)>& wanted) {
  std::vector<RegionState*> pinned;
  MutexLock lock(&mutex_);
  if (epoch < session_) return pinned;
  for (RegionState* region : regions_) {
    if (region->ended_ || !wanted(*region)) continue;
    ++region->pins_;
    pinned.push_back(region);
  }
  return pinned;
}

bool RegionRegistry::InSession(uint64_t epoch) const {
  MutexLock lock(&mutex_);
  return epoch >= session_;
}

bool RegionRegistry::SetKeys(RegionState& region, const v1::Lease& lease, uint64_t epoch) {
  MutexLock lock(&mutex_);
  if (epoch < session_) return false;
  region.SetKeys(lease);
  return true;
}

void RegionRegistry::MarkEnded(RegionState& region) {
  MutexLock lock(&mutex_);
  region.ended_ = true;
}

void RegionRegistry::Unpin(std::span<RegionState* const> regions) {
  MutexLock lock(&mutex_);
  for (RegionState* region : regions) --region->pins_;
  unpinned_.NotifyAll();
}

void RegionRegistry::OnEvent(const v1::AttachEvent& event) {
  const bool removed = event.kind() == v1::AttachEvent::DEVICE_REMOVED;
  if (event.lease_ids().empty() || (!removed && event.kind() != v1::AttachEvent::LAPSED &&
                                    event.kind() != v1::AttachEvent::REVOKED)) {
    return;
  }
  const std::unordered_set<uint64_t> ids(event.lease_ids().begin(), event.lease_ids().end());
  MutexLock lock(&mutex_);
  for (RegionState* region : regions_) {
    if (!ids.contains(region->lease_id())) continue;
    // With keys on other devices it goes on.
    const auto keys = removed ? region->keys() : std::vector<RegionKey>();
    region->ended_ |= std::all_of(keys.begin(), keys.end(), [&](const RegionKey& key) {
      return key.device == event.device();
    });
  }
}

}  // namespace mrd::internal
