// Broker's part of protection domains: private ones, and the named ones that sessions join.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/records.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

constexpr size_t kMostJoined = 256;

}  // namespace

absl::StatusOr<SessionDomain> Broker::MakeDomain(const std::string& device) {
  auto domain = fabric_.CreateDomain(device);
  if (ReasonOf(domain.status()) == v1::DEVICE_UNKNOWN) {
    return MakeError(v1::DEVICE_UNKNOWN, absl::StrCat("no device ", device, " here"),
                     {.advice = "ListDevices (mrctl devices) shows those there are"});
  }
  if (!domain.ok()) return domain.status();
  for (const bool anew : {false, true}) {
    for (const DeviceRef& known : anew ? devices_.Read(anew) : devices_.Known()) {
      if (known->name == device && known->generation == (*domain)->generation()) {
        if (ledger_) ledger_->KeepDevice(fabric_, *known);
        return SessionDomain{known, *std::move(domain)};
      }
    }
  }
  return DeviceRemoved(device);  // And maybe here again.
}

absl::StatusOr<SessionDomain> Broker::DomainFor(Session& session, const NamedDomainRef& named,
                                                const std::string& device) {
  // Endpoints too: which device a connection is on is known here first.
  if (auto allowed = session.terms()->CheckDevice(device); !allowed.ok()) return allowed;
  {
    MutexLock lock(session.mutex);
    if (session.ending) return SessionUnknown();
  }
  DomainSet& domains = named ? named->domains : session.domains;
  return domains.For(
      device, [this, &device] { return MakeDomain(device); },
      [this](const fabric::DeviceInfo& info) { return device_watch_.IsGone(info); });
}

absl::StatusOr<DomainView> Broker::OpenDomain(Session& session, const OpenDomainSpec& spec) {
  if (auto allowed = session.terms()->CheckNamedDomain(); !allowed.ok()) return allowed;
  auto domain = named_domains_.Open(session.identity, spec);
  if (!domain.ok()) return domain.status();
  NamedDomainRef ended;  // Declared before the lock: its end may block.
  const DomainView view{spec.name, (*domain)->owner, (*domain)->group, (*domain)->mode};
  MutexLock lock(session.mutex);
  if (session.ending) return SessionUnknown();
  if (session.joined.size() >= kMostJoined && !session.joined.contains(spec.name)) {
    return MakeError(v1::QUOTA_DOMAINS,
                     absl::StrCat("the session is in ", kMostJoined, " domains already"),
                     {.limit_name = "domains of the session",
                      .limit = kMostJoined,
                      .used = kMostJoined,
                      .advice = "Close domains that are not needed"});
  }
  // Where it is a member of one that has this name it was given that one.
  const auto [place, is_new] = session.joined.emplace(spec.name, *std::move(domain));
  if (is_new && ledger_ && session.record) {
    auto put = ledger_->Put(RecordOf(session, *place->second));
    if (!put.ok()) {
      ended = std::move(place->second);
      session.joined.erase(place);
      return MakeError(
          v1::BUSY, absl::StrCat("the membership cannot be written down: ", put.status().message()),
          {.advice = "The daemon is short of memory: try again later"});
    }
    session.memberships[spec.name] = *std::move(put);
  }
  return view;
}

void Broker::CloseDomain(const SessionRef& session, const std::string& name, Done done) {
  NamedDomainRef domain;
  std::shared_ptr<Work> work;
  {
    MutexLock lock(session->mutex);
    const auto found = session->joined.find(name);
    if (found != session->joined.end() && !session->ending) {
      domain = std::move(found->second);
      session->joined.erase(found);
      session->memberships.erase(name);
      work = std::make_shared<Work>(*this, session);
    }
  }
  if (!domain) return done(DomainUnknown(name));
  // Its end goes to the kernel.
  registrar_.SubmitCleanup(session->owner(), [work = std::move(work), domain = std::move(domain),
                                              done = std::move(done)]() mutable {
    domain.reset();
    done(absl::OkStatus());
  });
}

absl::StatusOr<NamedDomainRef> Broker::JoinedDomain(Session& session, const std::string& name) {
  if (name.empty()) return nullptr;
  MutexLock lock(session.mutex);
  const auto found = session.joined.find(name);
  if (found == session.joined.end()) return DomainUnknown(name);
  return found->second;
}

std::vector<MemberedDomain> Broker::Domains(const std::string& after, size_t most) {
  std::vector<MemberedDomain> domains;
  for (DomainView& view : named_domains_.ListAll(after, most)) {
    domains.push_back({std::move(view), 0});
  }
  const auto by_name = [](const MemberedDomain& domain, const std::string& name) {
    return domain.domain.name < name;
  };
  for (const SessionRef& session : All()) {
    MutexLock lock(session->mutex);
    for (const auto& [name, domain] : session->joined) {
      const auto at = std::lower_bound(domains.begin(), domains.end(), name, by_name);
      if (at != domains.end() && at->domain.name == name) ++at->members;
    }
  }
  return domains;
}

absl::Status DomainUnknown(const std::string& name) {
  return MakeError(v1::DOMAIN_UNKNOWN, absl::StrCat("the session is in no domain ", name),
                   {.advice = "OpenDomain first; each session opens it for itself"});
}

}  // namespace mrd::broker
