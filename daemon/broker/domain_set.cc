#include "daemon/broker/domain_set.h"

#include <utility>

namespace mrd::broker {

DomainSet::Slot* DomainSet::FindLocked(const std::string& device) {
  for (Slot& slot : slots_) {
    if (slot.device->name == device) return &slot;
  }
  return nullptr;
}

absl::StatusOr<SessionDomain> DomainSet::For(const std::string& device, Make make) {
  {
    MutexLock lock(mutex_);
    if (const Slot* const slot = FindLocked(device)) {
      if (auto made = slot->made.lock()) return SessionDomain{slot->device, std::move(made)};
    }
  }
  auto fresh = make();
  if (!fresh.ok()) return fresh;
  // Another call may have made one meanwhile: then this one's ends, after the lock.
  MutexLock lock(mutex_);
  Slot* slot = FindLocked(device);
  if (!slot) slot = &slots_.emplace_back();
  if (auto made = slot->made.lock()) return SessionDomain{slot->device, std::move(made)};
  *slot = {fresh->device, fresh->domain, nullptr};
  return fresh;
}

std::optional<SessionDomain> DomainSet::Kept(const std::string& device) {
  MutexLock lock(mutex_);
  const Slot* const slot = FindLocked(device);
  if (!slot || !slot->kept) return std::nullopt;
  return SessionDomain{slot->device, slot->kept};
}

void DomainSet::Keep(const SessionDomain& domain) {
  MutexLock lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.device == domain.device) slot.kept = domain.domain;
  }
}

std::vector<SessionDomain> DomainSet::Take() {
  std::vector<SessionDomain> taken;
  MutexLock lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.kept) taken.push_back({slot.device, std::move(slot.kept)});
  }
  slots_.clear();
  return taken;
}

}  // namespace mrd::broker
