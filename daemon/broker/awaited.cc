// Sessions of before a restart of the daemon: awaited until their clients attach them again.
#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/broker/broker.h"

namespace mrd::broker {

absl::StatusOr<SessionRef> Broker::Resume(const Identity& identity, const std::string& token,
                                          std::shared_ptr<Link> link) {
  MutexLock lock(mutex_);
  const auto found = by_token_.find(token);
  if (found == by_token_.end() || !found->second->awaited) return SessionUnknown();
  const SessionRef session = found->second;
  // The token alone is not enough: a process that has learned it is not the one that has the
  // memory, and whose end is to be the session's.
  const Identity& was = session->identity;
  if (identity.pid != was.pid || identity.start_time != was.start_time || identity.uid != was.uid ||
      identity.admin != was.admin) {
    return SessionUnknown();
  }
  session->link->Set(std::move(link));
  session->awaited = false;
  std::erase(awaited_, session);
  return session;
}

size_t Broker::awaited() {
  MutexLock lock(mutex_);
  return awaited_.size();
}

size_t Broker::SweepAwaited(const std::function<bool(const Identity&)>& lives,
                            std::chrono::steady_clock::time_point now) {
  std::vector<SessionRef> awaited;
  std::vector<SessionRef> adopted;
  bool too_late;
  {
    MutexLock lock(mutex_);
    awaited = awaited_;
    adopted = adopted_;
    too_late = now >= await_until_;
  }
  for (const SessionRef& session : awaited) {
    const bool alive = lives(session->identity);
    if (alive && !too_late) continue;
    {
      MutexLock lock(mutex_);
      // It may have come back just now.
      if (std::erase(awaited_, session) == 0) continue;
    }
    End(session, alive ? SessionEnd::kNotBack : SessionEnd::kPidfd);
  }
  std::vector<SessionRef> done;
  for (const SessionRef& session : adopted) {
    std::vector<NamedDomainRef> joined;
    {
      MutexLock lock(session->mutex);
      for (const auto& [name, domain] : session->joined) joined.push_back(domain);
    }
    session->domains.TakeUnused();  // Their ends go to the kernel.
    bool has_some = session->domains.HasAdopted();
    for (const NamedDomainRef& domain : joined) {
      domain->domains.TakeUnused();
      has_some |= domain->domains.HasAdopted();
    }
    if (!has_some) done.push_back(session);
  }
  MutexLock lock(mutex_);
  for (auto it = adopted_.begin(); it != adopted_.end();) {
    const bool over = std::find(done.begin(), done.end(), *it) != done.end() ||
                      by_id_.find((*it)->id) == by_id_.end();
    it = over ? adopted_.erase(it) : std::next(it);
  }
  return awaited_.size() + adopted_.size();
}

}  // namespace mrd::broker
