#include "daemon/broker/teardown.h"

#include <utility>

namespace mrd::broker {
namespace {

// Fewer regions than this are not worth a second thread.
constexpr size_t kRegionsAPart = 512;

}  // namespace

void Teardown::Start(Broker& broker, const SessionRef& session, SessionEnd how) {
  std::shared_ptr<Teardown> self;
  {
    MutexLock lock(session->mutex);
    if (session->ending) return;
    session->ending = true;
    session->end = {how, std::chrono::steady_clock::now(), session->held, session->buffers.size(),
                    session->leases.size()};
    self.reset(new Teardown(broker, Work(broker, session)));
    // From here on all that it has is nobody's, for the next run of the daemon too.
    session->record.Erase();
    self->endpoints_.swap(session->endpoints);
    const size_t parts =
        std::min(broker.registrar().most_a_session(), session->leases.size() / kRegionsAPart + 1);
    self->parts_.resize(parts);
    size_t next = 0;
    for (auto& [id, lease] : session->leases) {
      self->parts_[next++ * parts / session->leases.size()].push_back(std::move(lease));
    }
    session->leases.clear();
    session->expiries = {};
  }
  broker.lease_clock().Forget(session->id);
  broker.registrar().SubmitCleanup(session->ends(), [self] { self->EndEndpoints(); });
}

void Teardown::EndEndpoints() {
  const SessionRef& session = work_.session();
  const Amounts freed{.endpoints = endpoints_.size()};
  endpoints_.clear();
  broker_.books().Release(*session->holder, freed);
  {
    MutexLock lock(session->mutex);
    session->held -= freed;
  }
  parts_left_ = parts_.size();
  for (size_t part = 1; part < parts_.size(); ++part) {
    broker_.registrar().SubmitCleanup(
        session->ends(), [self = shared_from_this(), part] { self->EndRegions(part); });
  }
  EndRegions(0);
}

void Teardown::EndRegions(size_t part) {
  // Whoever is told of an error has gone: the broker keeps what would not end.
  broker_.EndLeases(work_.session(), parts_[part], LeaseEnd::kSessionEnded).IgnoreError();
  parts_[part].clear();
  if (--parts_left_ == 0) EndRest();
}

void Teardown::EndRest() {
  const SessionRef& session = work_.session();
  std::map<std::string, NamedDomainRef> joined;
  absl::flat_hash_map<uint64_t, BufferSlot> buffers;
  {
    MutexLock lock(session->mutex);
    joined.swap(session->joined);
    session->memberships.clear();
    buffers.swap(session->buffers);
  }
  session->domains.Take().clear();  // Before the buffers.
  joined.clear();
}

}  // namespace mrd::broker
