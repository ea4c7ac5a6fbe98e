#include "daemon/broker/add_keys.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/broker/records.h"
#include "mrd/v1/status.h"
#include "spdlog/spdlog.h"

namespace mrd::broker {

void AddKeys::Start(Broker& broker, const SessionRef& session, std::vector<LeaseBuffer> leases,
                    RegisterDone done) {
  const size_t most = broker.limits().ranges_per_call;
  if (leases.empty() || leases.size() > most) {
    return done(MakeError(v1::INVALID_LENGTH, absl::StrCat(leases.size(), " leases in one call"),
                          {.limit_name = "leases in one call",
                           .limit = most,
                           .advice = absl::StrCat("Name 1 to ", most, " leases a call")}));
  }
  absl::flat_hash_set<uint64_t> ids;
  for (const LeaseBuffer& each : leases) {
    if (ids.insert(each.lease_id).second) continue;
    return done(MakeError(v1::REQUEST_INVALID,
                          absl::StrCat("lease ", each.lease_id, " is named twice"),
                          {.advice = "Name each lease once"}));
  }
  if (auto taken = broker.TakesMore("no new registrations"); !taken.ok()) return done(taken);
  auto work = Work::Begin(broker, session);
  if (!work.ok()) return done(work.status());
  const auto self = std::shared_ptr<AddKeys>(
      new AddKeys(broker, *std::move(work), std::move(leases), std::move(done)));
  const absl::Status taken =
      broker.registrar().Submit(session->owner(), 0, [self] { self->Run(); });
  if (!taken.ok()) self->done_(taken);
}

void AddKeys::Run() {
  if (auto made = Make(); !made.ok()) {
    RollBack();
    return done_(made);
  }
  auto answer = std::make_shared<LeaseViews>();
  absl::Status ended;
  {
    MutexLock lock(session_.mutex);
    for (const LeaseBuffer& each : named_) {
      const auto lease = session_.leases.find(each.lease_id);
      if (lease == session_.leases.end()) {
        ended = session_.NoLease(each.lease_id, "the others have their keys");
        break;
      }
      answer->push_back(session_.ViewOf(*lease->second));
    }
  }
  if (!ended.ok()) return done_(ended);
  done_(std::move(answer));
}

absl::Status AddKeys::Make() {
  for (const DeviceRef& device : broker_.devices().Read()) newest_[device->name] = device;
  if (auto looked = Look(); !looked.ok()) return looked;
  if (auto booked = Book(); !booked.ok()) return booked;
  for (auto& [key, group] : groups_) {
    if (auto pinned = Pin(key, group); !pinned.ok()) return pinned;
  }
  Commit();
  return absl::OkStatus();
}

absl::Status AddKeys::Look() {
  for (const bool drained : {false, true}) {
    {
      MutexLock lock(session_.mutex);
      const absl::Status looked = LookLocked();
      if (ReasonOf(looked) != v1::BUFFER_UNKNOWN || drained) return looked;
    }
    // Its packet was sent before the call.
    groups_.clear();
    session_.link->Drain();
  }
  return absl::OkStatus();
}

absl::Status AddKeys::LookLocked() {
  if (session_.ending) return SessionUnknown();
  for (const LeaseBuffer& each : named_) {
    const auto found = session_.leases.find(each.lease_id);
    if (found == session_.leases.end()) {
      return session_.NoLease(each.lease_id, "nothing was changed");
    }
    const LeaseView& view = found->second->view;
    NamedDomainRef named;
    const auto slot = session_.buffers.find(each.buffer_id);
    if (slot == session_.buffers.end()) {
      return MakeError(
          v1::BUFFER_UNKNOWN, absl::StrCat("no buffer ", each.buffer_id, " in this session"),
          {.advice = "Pass the buffer anew after the daemon's restart, and before naming it"});
    }
    slot->second.claimed = true;
    if (!slot->second.buffer) return slot->second.refusal;
    if (view.domain) {
      // Another one may have its name by now.
      const auto joined = session_.joined.find(*view.domain);
      if (joined == session_.joined.end() || joined->second->name != view.domain) {
        return DomainUnknown(*view.domain);
      }
      named = joined->second;
    }
    std::map<std::string, bool> devices;  // Whether it has a key in the newest generation.
    for (const KeyView& key : view.keys) {
      const auto newest = newest_.find(key.device->name);
      if (newest == newest_.end()) continue;
      devices[key.device->name] |= key.device->generation == newest->second->generation;
    }
    for (const auto& [device, has_newest] : devices) {
      if (has_newest) continue;
      Group& group = groups_[{view.domain ? *view.domain : "", device, view.access}];
      group.named = named;
      group.ranges.push_back({each.buffer_id, view.offset, view.length, view.addr});
      group.buffers.push_back(slot->second.buffer);
      group.leases.push_back(std::make_unique<Lease>());
      Lease& added = *group.leases.back();
      added.view.id = view.id;
      added.view.addr = view.addr;
      added.view.length = view.length;
    }
  }
  return absl::OkStatus();
}

absl::Status AddKeys::Book() {
  const policy::TermsRef terms = session_.terms();
  Amounts wanted;
  for (auto& [key, group] : groups_) {
    if (auto allowed = terms->CheckRegistration({std::get<1>(key)}, std::get<2>(key));
        !allowed.ok()) {
      return allowed;
    }
    for (size_t i = 0; i < group.ranges.size(); ++i) {
      const RangeSpec& range = group.ranges[i];
      const auto checked =
          group.buffers[i]->Check(range.offset, range.length, range.addr, terms->unsealed);
      if (!checked.ok()) return OfRange(group.ranges, i, checked);
      wanted += group.leases[i]->each();
    }
  }
  if (auto booked = broker_.books().Book(*session_.holder, wanted); !booked.ok()) return booked;
  booked_ = wanted;
  MutexLock lock(session_.mutex);
  session_.held += wanted;
  return absl::OkStatus();
}

absl::Status AddKeys::Pin(const Key& key, Group& group) {
  const std::string& device = std::get<1>(key);
  for (size_t i = 0; i < group.ranges.size(); ++i) {
    memory::Buffer::Seen seen;
    const RangeSpec& range = group.ranges[i];
    const auto present =
        group.buffers[i]->CheckPresent(range.offset, range.length, &seen, [] { return false; });
    if (!present.ok()) return OfRange(group.ranges, i, present);
  }
  auto domain = broker_.DomainFor(session_, group.named, device);
  if (!domain.ok()) return domain.status();
  group.domains.push_back(*std::move(domain));
  const auto go_on = [this] {
    MutexLock lock(session_.mutex);
    return session_.ending ? SessionUnknown() : absl::OkStatus();
  };
  return group.pinning.Run({.ranges = group.ranges,
                            .buffers = group.buffers,
                            .domains = group.domains,
                            .leases = group.leases,
                            .access = std::get<2>(key),
                            .may_wait = true,
                            .go_on = go_on,
                            .report = [](const Progress&) {}},
                           [] {});
}

void AddKeys::Commit() {
  {
    MutexLock lock(session_.mutex);
    for (auto& [key, group] : groups_) {
      for (auto& added : group.leases) {
        const auto found = session_.leases.find(added->view.id);
        // It has ended meanwhile, or its device has gone again.
        if (session_.ending || found == session_.leases.end() ||
            broker_.device_watch().IsGone(*group.domains[0].device)) {
          continue;
        }
        Lease& lease = *found->second;
        auto& keys = lease.view.keys;
        // Another call for it, a repeat of this one, has been faster.
        const DeviceRef& on = group.domains[0].device;
        if (std::any_of(keys.begin(), keys.end(), [&on](const KeyView& each) {
              return each.device->name == on->name && each.device->generation >= on->generation;
            })) {
          continue;
        }
        // The newest of a device first.
        const std::string& device = std::get<1>(key);
        const auto place = std::find_if(keys.begin(), keys.end(), [&device](const KeyView& each) {
          return each.device->name == device;
        });
        keys.insert(place, added->view.keys[0]);
        lease.regions.push_back(std::move(added->regions[0]));
        booked_ -= added->each();
        added = nullptr;
        if (ledger::Ledger* const ledger = broker_.ledger()) {
          if (auto written = Rewrite(*ledger, lease); !written.ok()) {
            spdlog::error("lease {} does not survive the daemon: {}", lease.view.id,
                          std::string(written.message()));
          }
        }
      }
      if (std::erase(group.leases, nullptr) == 0) continue;
      DomainSet& domains = group.named ? group.named->domains : session_.domains;
      domains.Keep(group.domains[0]);
    }
  }
  RollBack();  // What is left.
}

void AddKeys::RollBack() {
  std::vector<std::unique_ptr<Lease>> stuck;
  Amounts kept;
  absl::Status why;
  for (auto& [key, group] : groups_) {
    for (auto& added : group.leases) {
      auto& regions = added->regions;
      regions.erase(std::remove_if(regions.begin(), regions.end(),
                                   [](const HeldRegion& held) { return !held.region; }),
                    regions.end());
      if (added->regions.empty()) continue;
      if (EndRegions(*added, &why)) continue;
      kept += added->booked();
      stuck.push_back(std::move(added));
    }
  }
  groups_.clear();
  booked_ -= kept;
  broker_.books().Release(*session_.holder, booked_);
  {
    MutexLock lock(session_.mutex);
    session_.held -= booked_;
  }
  booked_ = {};
  broker_.KeepStuck(session_, std::move(stuck), why);
}

}  // namespace mrd::broker
