#include "daemon/broker/broker.h"

#include <string.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/page.h"
#include "daemon/broker/records.h"
#include "daemon/broker/registration.h"
#include "daemon/broker/session_end.h"
#include "daemon/broker/teardown.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

constexpr size_t kTokenBytes = 16;

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  // Up to 256 bytes come whole (getrandom(2)); without them no identity is safe.
  if (getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count)) abort();
  return bytes;
}

// Ids start at a random place, so that those of an earlier daemon are unknown to this one.
uint64_t RandomStart() {
  uint64_t start;
  memcpy(&start, RandomBytes(sizeof start).data(), sizeof start);
  return (start >> 2) | 1;
}

}  // namespace

absl::Status SessionUnknown() {
  return MakeError(v1::SESSION_UNKNOWN, "the session is unknown or has ended",
                   {.advice = "Attach again"});
}

Broker::Broker(fabric::Fabric& fabric, const Limits& limits, size_t threads, Observer& observer,
               bool adopts)
    : fabric_(fabric),
      observer_(observer),
      session_log_(observer),
      limits_(WithDefaults(limits)),
      books_(limits_),
      next_id_(RandomStart()),
      devices_(fabric, registrar_),
      device_watch_(*this),
      registrar_(limits_, threads, observer) {
  if (!adopts) device_watch_.Start();
}

Broker::~Broker() {
  fabric_.Watch({});  // No look is asked for any more; those that are queued are the registrar's.
}

absl::StatusOr<SessionRef> Broker::Attach(Identity identity, std::string name,
                                          std::shared_ptr<Link> link) {
  const absl::Status drained = MakeError(v1::DRAINING, "the daemon is ending",
                                         {.advice = "Attach again when it has started anew"});
  if (draining()) return drained;
  const bool admin = identity.admin;
  if (auto taken = TakesMore("no new sessions"); !taken.ok() && !admin) return taken;
  HolderRef holder = books_.Join(SubjectOf(identity));
  if (auto booked = books_.Book(*holder, {.sessions = 1}); !booked.ok()) return booked;
  const uint64_t id = next_session_id_.fetch_add(1);
  auto session = std::make_shared<Session>(id, RandomBytes(kTokenBytes), std::move(identity),
                                           std::move(holder), std::move(name), std::move(link));
  WriteDown(*session);
  MutexLock lock(mutex_);
  if (draining()) {  // Drain has taken its list already.
    books_.Release(*session->holder, {.sessions = 1});
    return drained;
  }
  if (auto taken = TakesMore("no new sessions"); !taken.ok() && !admin) {  // So has StartDrain.
    books_.Release(*session->holder, {.sessions = 1});
    return taken;
  }
  AddLocked(session);
  observer_.SessionAttached();
  return session;
}

void Broker::AddLocked(const SessionRef& session) {
  by_token_[session->token] = session;
  by_id_[session->id] = session;
  const Identity& who = session->identity;
  if (who.admin) admins_.emplace(who.pid, who.uid);
  User& user = users_[session->user];
  ++user.sessions;
  session->calls_of_user = user.calls;
}

void Broker::SetLedger(ledger::Ledger& ledger) {
  ledger_ = &ledger;
  const ledger::Slots& slots = ledger.slots();
  next_id_ = std::max(slots.counter(ledger::Slots::kNextId), next_id_.load());
  next_session_id_ =
      std::max(slots.counter(ledger::Slots::kNextSessionId), next_session_id_.load());
}

void Broker::WriteDown(Session& session) {
  // An admin session holds nothing.
  if (!ledger_ || session.identity.admin) return;
  ledger_->UsesSessionId(session.id);
  auto put = ledger_->Put(RecordOf(session));
  if (!put.ok()) {
    session_log_.Write(
        spdlog::level::warn, session.id, session.identity,
        absl::StrCat("the session does not survive the daemon: ", put.status().message()));
    return;
  }
  MutexLock lock(session.mutex);
  session.record = *std::move(put);
}

absl::StatusOr<SessionRef> Broker::Find(const std::string& token) {
  MutexLock lock(mutex_);
  const auto found = by_token_.find(token);
  if (found == by_token_.end()) return SessionUnknown();
  if (!found->second->awaited) return found->second;
  return MakeError(v1::SESSION_AWAITED,
                   "the daemon was restarted, and the session has not been attached again yet",
                   {.advice = "Attach with its token, and repeat the call"});
}

SessionRef Broker::SessionById(uint64_t id) {
  MutexLock lock(mutex_);
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::vector<SessionView> Broker::Sessions(uint64_t after_id, size_t most) {
  std::vector<SessionRef> page;
  {
    MutexLock lock(mutex_);
    for (auto it = by_id_.upper_bound(after_id); it != by_id_.end() && page.size() < most; ++it) {
      page.push_back(it->second);
    }
  }
  std::vector<SessionView> views;
  for (const SessionRef& session : page) views.push_back(session->View());
  return views;
}

policy::Subject SubjectOf(const Identity& identity) {
  policy::Subject subject{.uid = identity.uid,
                          .gids = {identity.gid},
                          .cgroup = identity.cgroup,
                          .admin = identity.admin};
  subject.gids.insert(subject.gids.end(), identity.groups.begin(), identity.groups.end());
  return subject;
}

bool Broker::HasAdmin(pid_t pid, uid_t uid) {
  MutexLock lock(mutex_);
  return pid != 0 && admins_.contains({pid, uid});
}

size_t Broker::session_count() {
  MutexLock lock(mutex_);
  return by_id_.size();
}

void Broker::End(const SessionRef& session, SessionEnd how) {
  {
    MutexLock lock(mutex_);
    by_token_.erase(session->token);
  }
  Teardown::Start(*this, session, how);
}

void Broker::Gone(SessionRef session) {
  TellEnded(*this, *session);
  books_.Release(*session->holder, {.sessions = 1});
  session->link->HangUp();  // Who attaches anew on it has room.
  std::function<void()> drained;
  {
    MutexLock lock(mutex_);
    by_id_.erase(session->id);
    const Identity& who = session->identity;
    if (who.admin) admins_.erase(admins_.find({who.pid, who.uid}));
    const auto user = users_.find(session->user);
    if (--user->second.sessions == 0) users_.erase(user);
    if (by_id_.empty()) std::swap(drained, drained_);
  }
  session = nullptr;  // It needs the books, which may end when all have been told.
  if (drained) drained();
}

void Broker::Drain(std::function<void()> ended) {
  std::vector<SessionRef> all;
  {
    MutexLock lock(mutex_);
    draining_ = true;
    for (const auto& [id, session] : by_id_) all.push_back(session);
    if (!all.empty()) drained_ = std::move(ended);
  }
  if (all.empty()) return ended();
  for (const SessionRef& session : all) {
    session->link->Send({.kind = v1::AttachEvent::DRAINING,
                         .cause = v1::AttachEvent::SHUTDOWN,
                         .message = "the daemon is ending; so does this session"});
    End(session, SessionEnd::kShutdown);
  }
}

void Broker::Register(const SessionRef& session, RegisterSpec spec, RegisterDone done) {
  Registration::Start(*this, session, std::move(spec), std::move(done));
}

std::vector<SessionRef> Broker::All() {
  std::vector<SessionRef> sessions;
  MutexLock lock(mutex_);
  for (const auto& [id, session] : by_id_) sessions.push_back(session);
  return sessions;
}

std::map<std::string, uint64_t> Broker::RegionsByDevice() {
  std::map<std::string, uint64_t> regions;
  for (const SessionRef& session : All()) {
    MutexLock lock(session->mutex);
    for (const auto& [id, lease] : session->leases) {
      for (const KeyView& key : lease->view.keys) ++regions[key.device->name];
    }
  }
  return regions;
}

Totals Broker::Count() {
  Totals totals{.booked = books_.Total()};
  for (const SessionRef& session : All()) {
    MutexLock lock(session->mutex);
    totals.buffers += session->buffers.size();
  }
  totals.mappings = mappings_.cache.count() + mappings_.window.count();
  return totals;
}

Amounts Broker::Stuck() {
  Amounts stuck;
  MutexLock lock(mutex_);
  for (const auto& lease : stuck_) stuck += lease->booked();
  return stuck;
}

LeasePage Broker::Leases(const SessionRef& session, uint64_t after, size_t most) {
  const std::vector<SessionRef> sessions = session ? std::vector<SessionRef>{session} : All();
  PageOf<LeaseView> first(most);
  for (const SessionRef& each : sessions) {
    MutexLock lock(each->mutex);
    size_t taken = 0;
    for (auto it = each->leases.upper_bound(after);
         it != each->leases.end() && taken <= most && first.Wants(it->first); ++it, ++taken) {
      first.Add(each->id, each->ViewOf(*it->second));
    }
  }
  LeasePage page;
  page.leases = first.Take(&page.next);
  return page;
}

absl::StatusOr<Work> Work::Begin(Broker& broker, const SessionRef& session) {
  MutexLock lock(session->mutex);
  if (session->ending) return SessionUnknown();
  return Work(broker, session);
}

Work::Work(Broker& broker, const SessionRef& session) : broker_(&broker), session_(session) {
  ++session->pending;
}

Work::~Work() {
  if (!session_) return;
  {
    MutexLock lock(session_->mutex);
    if (--session_->pending > 0 || !session_->ending) return;
  }
  broker_->Gone(std::move(session_));
}

}  // namespace mrd::broker
