// Broker::Deregister and the end of leases, whatever its cause.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/broker/broker.h"
#include "daemon/log.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

// What a thread that takes calls may end itself.
constexpr size_t kSmallRegions = 512;
constexpr uint64_t kSmallBytes = 4 << 20;

}  // namespace

bool EndRegions(Lease& lease, absl::Status* first_error) {
  lease.written = nullptr;
  for (HeldRegion& held : lease.regions) {
    const absl::Status ended = held.region->Deregister();
    if (ended.ok()) {
      held.region = nullptr;
    } else if (first_error->ok()) {
      *first_error = ended;
    }
  }
  const auto left = std::remove_if(lease.regions.begin(), lease.regions.end(),
                                   [](const HeldRegion& held) { return !held.region; });
  lease.regions.erase(left, lease.regions.end());
  // What is left of it shows the keys that are left. Each device has one.
  if (!lease.regions.empty()) {
    auto& keys = lease.view.keys;
    const auto dead = [&lease](const KeyView& key) {
      return std::none_of(lease.regions.begin(), lease.regions.end(), [&](const HeldRegion& held) {
        return key.device && held.domain->device() == key.device->name &&
               held.domain->generation() == key.device->generation;
      });
    };
    keys.erase(std::remove_if(keys.begin(), keys.end(), dead), keys.end());
  }
  return lease.regions.empty();
}

void Broker::Deregister(const SessionRef& session, std::vector<uint64_t> lease_ids, Done done) {
  const size_t most = limits_.ranges_per_call;
  if (lease_ids.empty() || lease_ids.size() > most) {
    return done(MakeError(v1::INVALID_LENGTH, absl::StrCat(lease_ids.size(), " leases in one call"),
                          {.limit_name = "leases in one call",
                           .limit = most,
                           .advice = absl::StrCat("Deregister 1 to ", most, " leases a call")}));
  }
  std::vector<std::unique_ptr<Lease>> leases;
  Amounts all;
  absl::Status refusal;
  absl::flat_hash_set<uint64_t> named;
  named.reserve(lease_ids.size());
  std::shared_ptr<Work> work;
  {
    MutexLock lock(session->mutex);
    if (session->ending) refusal = SessionUnknown();
    for (const uint64_t id : lease_ids) {
      if (!refusal.ok()) break;
      if (!session->leases.contains(id)) {
        refusal = session->NoLease(id, "nothing was ended");
      } else if (!named.insert(id).second) {
        refusal = MakeError(v1::LEASE_UNKNOWN,
                            absl::StrCat("lease ", id, " is named twice; nothing was ended"),
                            {.advice = "Name each lease once"});
      }
    }
    if (refusal.ok()) {
      for (const uint64_t id : lease_ids) {
        leases.push_back(session->TakeLease(id));
        all += leases.back()->booked();
      }
      work = std::make_shared<Work>(*this, session);
    }
  }
  if (!refusal.ok()) return done(refusal);
  auto task = [this, work, leases = std::move(leases), done = std::move(done)]() mutable {
    const absl::Status ended = EndLeases(work->session(), leases, LeaseEnd::kDeregistered);
    leases.clear();
    done(ended);
  };
  if (all.regions <= kSmallRegions && all.bytes <= kSmallBytes) {
    registrar_.RunSmallCleanup(session->owner(), std::move(task));
  } else {
    registrar_.SubmitCleanup(session->owner(), std::move(task));
  }
}

absl::Status Broker::EndLeases(const SessionRef& session,
                               std::vector<std::unique_ptr<Lease>>& leases, LeaseEnd cause) {
  absl::Status first_error;
  Amounts freed;
  std::vector<std::unique_ptr<Lease>> stuck;
  for (auto& lease : leases) {
    const Amounts booked = lease->booked();
    const bool ended = EndRegions(*lease, &first_error);
    freed += booked;
    freed -= lease->booked();
    if (!ended) stuck.push_back(std::move(lease));
  }
  observer_.LeasesEnded(cause, leases.size() - stuck.size());
  books_.Release(*session->holder, freed);
  {
    MutexLock lock(session->mutex);
    session->held -= freed;
    for (const auto& lease : leases) {
      if (lease) session->Ended(*lease);
    }
    if (!session->ending) {
      for (auto& lease : stuck) session->PutLease(std::move(lease));
      if (!stuck.empty()) WatchLocked(*session);  // One with a ttl is tried again after it.
      stuck.clear();
    }
  }
  KeepStuck(*session, std::move(stuck), first_error);
  return first_error;
}

void Broker::KeepStuck(const Session& session, std::vector<std::unique_ptr<Lease>> leases,
                       const absl::Status& why) {
  if (leases.empty()) return;
  // One line however many they are, and no bound on it: they cost memory for good.
  Amounts all;
  for (const auto& lease : leases) all += lease->booked();
  const Lease& first = *leases.front();
  log::Fields fields;
  fields.Session(session.id).Uid(session.identity.uid).Pid(session.identity.pid);
  fields.Device(first.regions.front().domain->device()).Lease(first.view.id);
  if (const auto detail = DetailOf(why); detail && detail->errno_value() != 0) {
    fields.Errno(detail->errno_value());
  }
  log::Write(spdlog::level::err,
             absl::StrCat(all.regions, " regions of ", all.bytes, " bytes cannot be ended: ",
                          why.message(), ". They stay booked to the uid until the daemon ends; ",
                          "their pages stay pinned."),
             fields);
  MutexLock lock(mutex_);
  for (auto& lease : leases) {
    lease->request = nullptr;  // Its session's, which ends.
    stuck_.push_back(std::move(lease));
  }
}

}  // namespace mrd::broker
