#include "daemon/broker/domain_set.h"

#include <algorithm>
#include <utility>

#include "daemon/broker/device_watch.h"

namespace mrd::broker {

std::optional<SessionDomain> DomainSet::MadeLocked(const std::string& device, IsGone is_gone) {
  for (const Slot& slot : slots_) {
    if (slot.adopted || slot.device->name != device || is_gone(*slot.device)) continue;
    if (auto made = slot.made.lock()) return SessionDomain{slot.device, std::move(made)};
  }
  return std::nullopt;
}

absl::StatusOr<SessionDomain> DomainSet::For(const std::string& device, Make make, IsGone is_gone) {
  {
    MutexLock lock(mutex_);
    if (auto made = MadeLocked(device, is_gone)) return *std::move(made);
  }
  auto fresh = make();
  if (!fresh.ok()) return fresh;
  MutexLock lock(mutex_);
  // Whoever drops all on the device has done so already, or does after this.
  if (is_gone(*fresh->device)) return DeviceRemoved(device);
  // Another call may have made one meanwhile: then this one's ends, after the lock.
  if (auto made = MadeLocked(device, is_gone)) return *std::move(made);
  std::erase_if(slots_, [](const Slot& slot) { return slot.made.expired(); });
  slots_.push_back({fresh->device, fresh->domain, nullptr, false});
  return fresh;
}

std::optional<SessionDomain> DomainSet::Kept(const std::string& device) {
  MutexLock lock(mutex_);
  // The newest: an older one of a device that came back may not have been dropped yet.
  for (auto slot = slots_.rbegin(); slot != slots_.rend(); ++slot) {
    if (slot->adopted || slot->device->name != device) continue;
    if (!slot->kept) return std::nullopt;
    return SessionDomain{slot->device, slot->kept};
  }
  return std::nullopt;
}

void DomainSet::Adopt(SessionDomain domain) {
  MutexLock lock(mutex_);
  slots_.push_back({std::move(domain.device), domain.domain, domain.domain, true});
  has_adopted_ = true;
}

std::vector<SessionDomain> DomainSet::Adopted(const std::string& device) {
  std::vector<SessionDomain> adopted;
  MutexLock lock(mutex_);
  for (const Slot& slot : slots_) {
    if (slot.adopted && slot.device->name == device) adopted.push_back({slot.device, slot.kept});
  }
  std::sort(adopted.begin(), adopted.end(), [](const SessionDomain& a, const SessionDomain& b) {
    return a.device->generation > b.device->generation;
  });
  return adopted;
}

std::vector<SessionDomain> DomainSet::TakeUnused() {
  std::vector<SessionDomain> unused;
  MutexLock lock(mutex_);
  std::erase_if(slots_, [&unused](Slot& slot) {
    if (!slot.adopted || slot.kept.use_count() > 1) return false;
    unused.push_back({slot.device, std::move(slot.kept)});
    return true;
  });
  NoteAdoptedLocked();
  return unused;
}

void DomainSet::NoteAdoptedLocked() {
  has_adopted_ =
      std::any_of(slots_.begin(), slots_.end(), [](const Slot& slot) { return slot.adopted; });
}

void DomainSet::Keep(const SessionDomain& domain) {
  MutexLock lock(mutex_);
  for (Slot& slot : slots_) {
    if (slot.device == domain.device) slot.kept = domain.domain;
  }
}

std::vector<SessionDomain> DomainSet::Drop(const fabric::DeviceInfo& device) {
  std::vector<SessionDomain> dropped;
  MutexLock lock(mutex_);
  std::erase_if(slots_, [&](Slot& slot) {
    const fabric::DeviceInfo& of = *slot.device;
    if (of.name != device.name || of.generation > device.generation) return false;
    if (slot.kept) dropped.push_back({slot.device, std::move(slot.kept)});
    return true;
  });
  NoteAdoptedLocked();
  return dropped;
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
