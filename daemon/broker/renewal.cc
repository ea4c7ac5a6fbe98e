// The time of leases: Broker::Renew, and the end of those that were not renewed.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/broker.h"
#include "daemon/log.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

// Under one hold of a session's lock; then others have their turn.
constexpr size_t kLookedAtAtOnce = 1000;

}  // namespace

absl::StatusOr<Renewal> Broker::Renew(Session& session, const std::vector<uint64_t>& lease_ids) {
  const size_t most = limits_.ranges_per_call;
  if (lease_ids.size() > most) {
    return MakeError(v1::INVALID_LENGTH, absl::StrCat(lease_ids.size(), " leases in one call"),
                     {.limit_name = "leases in one call",
                      .limit = most,
                      .advice = absl::StrCat("Name at most ", most,
                                             " leases a call, or none for all that there are")});
  }
  const auto now = Expiries::Clock::now();
  MutexLock lock(session.mutex);
  if (session.ending) return SessionUnknown();
  for (const uint64_t id : lease_ids) {
    if (session.leases.contains(id)) continue;
    return session.NoLease(id, "nothing was renewed");
  }
  session.renewals.fetch_add(1, std::memory_order_relaxed);
  const auto stamp =
      static_cast<uint64_t>(std::chrono::nanoseconds(now.time_since_epoch()).count());
  for (const uint64_t id : lease_ids) {
    Lease& lease = *session.leases.at(id);
    session.expiries.Renew(lease, now);
    if (lease.written) lease.written->record.SetStamp(stamp);
  }
  if (!lease_ids.empty()) return Renewal{lease_ids.size(), session.expiries.shortest_ttl()};
  session.expiries.RenewAll(now);
  session.record.SetStamp(stamp);
  return Renewal{session.expiries.size(), session.expiries.shortest_ttl()};
}

std::optional<Expiries::Clock::time_point> Broker::EndLapsed(Expiries::Clock::time_point now) {
  for (const uint64_t id : lease_clock_.TakeDue(now)) {
    if (const SessionRef session = SessionById(id)) EndLapsedOf(session, now);
  }
  return lease_clock_.next();
}

void Broker::EndLapsedOf(const SessionRef& session, Expiries::Clock::time_point now) {
  std::vector<std::unique_ptr<Lease>> lapsed;
  std::optional<Work> work;
  {
    MutexLock lock(session->mutex);
    if (session->ending) return;
    for (const uint64_t id : session->expiries.Lapsed(now, kLookedAtAtOnce)) {
      lapsed.push_back(session->TakeLease(id));
    }
    WatchLocked(*session);
    if (lapsed.empty()) return;
    session->lapses.fetch_add(lapsed.size(), std::memory_order_relaxed);
    work.emplace(Work(*this, session));
  }
  log::Fields fields = log::Fields().Reason("lapsed");
  if (lapsed.size() == 1) fields.Lease(lapsed.front()->view.id);
  session_log_.Write(spdlog::level::info, session->id, session->identity,
                     absl::StrCat(lapsed.size(), lapsed.size() == 1 ? " lease was" : " leases were",
                                  " not renewed in time, and lapsed"),
                     fields);
  EndAndTell(*std::move(work), std::move(lapsed), LeaseEnd::kLapsed,
             {.kind = v1::AttachEvent::LAPSED, .message = "not renewed within their ttl"});
}

void Broker::WatchLocked(Session& session) {
  if (const auto next = session.expiries.next()) lease_clock_.Watch(session.id, *next);
}

void Broker::EndAndTell(Work work, std::vector<std::unique_ptr<Lease>> leases, LeaseEnd cause,
                        Event event, LeasesEnded then) {
  const Owner owner = work.session()->ends();
  registrar_.SubmitCleanup(owner, [this, work = std::move(work), leases = std::move(leases), cause,
                                   event = std::move(event), then = std::move(then)]() mutable {
    // The fence first: whoever is told may use the pages for something else. What would not end is
    // not told of.
    const absl::Status error = EndLeases(work.session(), leases, cause);
    for (const auto& lease : leases) {
      if (lease) event.lease_ids.push_back(lease->view.id);
    }
    leases.clear();
    if (!event.lease_ids.empty()) work.session()->link->Send(event);
    if (then) then(event.lease_ids.size(), error);
  });
}

}  // namespace mrd::broker
