// Broker::RevokeLeases and RevokeSession: the operator ends what clients hold.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/broker.h"
#include "daemon/log.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

std::string Because(const std::string& reason) {
  return reason.empty() ? "" : absl::StrCat(": ", reason);
}

// The session that it happens to, and who did it. The session's share of lines does not count: the
// operator's own deed is never left out.
log::Fields FieldsOf(const Session& session, const Session& admin) {
  return log::Fields()
      .Session(session.id)
      .Uid(session.identity.uid)
      .Pid(session.identity.pid)
      .Reason("revoked")
      .Add("admin_uid", std::to_string(admin.identity.uid))
      .Add("admin_pid", admin.identity.pid == 0 ? "hidden" : std::to_string(admin.identity.pid));
}

// One call under way. It is answered when the last session's part is done, whichever that is.
class Revocation {
 public:
  Revocation(Work admin, RevokeDone done) : admin_(std::move(admin)), done_(std::move(done)) {}
  ~Revocation() {
    if (first_error_.ok()) {
      done_(revoked_);
    } else {
      done_(first_error_);
    }
  }

  const Session& admin() const { return *admin_.session(); }
  void Ended(size_t leases, const absl::Status& error) {
    MutexLock lock(mutex_);
    revoked_ += leases;
    if (first_error_.ok()) first_error_ = error;
  }

 private:
  Work admin_;
  RevokeDone done_;
  Mutex mutex_;
  uint64_t revoked_ MRD_GUARDED_BY(mutex_) = 0;
  absl::Status first_error_ MRD_GUARDED_BY(mutex_);
};

using Found = std::vector<std::pair<SessionRef, std::vector<uint64_t>>>;

// Whose they are. `ids` are sorted; those that are found go out of it.
Found FindLeases(const std::vector<SessionRef>& sessions, std::vector<uint64_t>& ids) {
  Found found;
  for (const SessionRef& session : sessions) {
    if (ids.empty()) break;
    std::vector<uint64_t> its;
    {
      MutexLock lock(session->mutex);
      if (session->leases.empty()) continue;
      for (const uint64_t id : ids) {
        if (session->leases.contains(id)) its.push_back(id);
      }
    }
    if (its.empty()) continue;
    std::vector<uint64_t> rest;
    std::set_difference(ids.begin(), ids.end(), its.begin(), its.end(), std::back_inserter(rest));
    ids = std::move(rest);
    found.emplace_back(session, std::move(its));
  }
  return found;
}

}  // namespace

void Broker::RevokeLeases(const SessionRef& admin, std::vector<uint64_t> lease_ids,
                          const std::string& reason, RevokeDone done) {
  const size_t most = limits_.ranges_per_call;
  if (lease_ids.empty() || lease_ids.size() > most) {
    return done(MakeError(v1::INVALID_LENGTH, absl::StrCat(lease_ids.size(), " leases in one call"),
                          {.limit_name = "leases in one call",
                           .limit = most,
                           .advice = absl::StrCat("Revoke 1 to ", most, " leases a call")}));
  }
  auto work = Work::Begin(*this, admin);
  if (!work.ok()) return done(work.status());
  std::sort(lease_ids.begin(), lease_ids.end());
  lease_ids.erase(std::unique(lease_ids.begin(), lease_ids.end()), lease_ids.end());
  // Looks into every session: not on a thread that takes calls.
  registrar_.SubmitCleanup(admin->owner(), [this, work = *std::move(work), ids = lease_ids, reason,
                                            done = std::move(done)]() mutable {
    const Found found = FindLeases(All(), ids);
    if (!ids.empty()) {
      return done(MakeError(
          v1::LEASE_UNKNOWN,
          absl::StrCat("no lease ", ids.front(), " in any session; nothing was revoked"),
          {.advice = "It has ended already; ListAllLeases (mrctl leases) shows those that stand"}));
    }
    auto revocation = std::make_shared<Revocation>(std::move(work), std::move(done));
    for (const auto& [session, its] : found) {
      RevokeOf(session, its, reason, revocation->admin(),
               [revocation](size_t ended, const absl::Status& error) {
                 revocation->Ended(ended, error);
               });
    }
  });
}

void Broker::RevokeOf(const SessionRef& session, const std::vector<uint64_t>& ids,
                      const std::string& reason, const Session& admin, LeasesEnded then) {
  std::vector<std::unique_ptr<Lease>> leases;
  std::optional<Work> work;
  {
    MutexLock lock(session->mutex);
    if (session->ending) return;
    for (const uint64_t id : ids) {
      if (auto lease = session->TakeLease(id)) leases.push_back(std::move(lease));
    }
    if (leases.empty()) return;
    work.emplace(Work(*this, session));
  }
  log::Fields fields = FieldsOf(*session, admin);
  if (leases.size() == 1) fields.Lease(leases.front()->view.id);
  log::Write(spdlog::level::info,
             absl::StrCat(leases.size(), leases.size() == 1 ? " lease" : " leases",
                          " revoked by an admin", Because(reason)),
             fields);
  EndAndTell(*std::move(work), std::move(leases), LeaseEnd::kRevoked,
             {.kind = v1::AttachEvent::REVOKED,
              .message = absl::StrCat("revoked by the operator", Because(reason))},
             std::move(then));
}

absl::Status Broker::RevokeSession(const SessionRef& admin, uint64_t id,
                                   const std::string& reason) {
  const SessionRef session = SessionById(id);
  if (!session) {
    return MakeError(v1::NO_SUCH_SESSION, absl::StrCat("no session ", id),
                     {.advice = "ListSessions (mrctl sessions) shows those there are"});
  }
  if (session == admin) {
    return MakeError(v1::REQUEST_INVALID, absl::StrCat("session ", id, " is the calling one"),
                     {.advice = "Close the attach socket to end it"});
  }
  {
    MutexLock lock(session->mutex);
    if (session->ending) return absl::OkStatus();
  }
  log::Write(spdlog::level::info, absl::StrCat("session revoked by an admin", Because(reason)),
             FieldsOf(*session, *admin));
  session->link->Send({.kind = v1::AttachEvent::REVOKED,
                       .message = absl::StrCat("the operator ends this session", Because(reason))});
  End(session, SessionEnd::kRevoked);
  return absl::OkStatus();
}

}  // namespace mrd::broker
