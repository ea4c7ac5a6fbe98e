#include "daemon/broker/named_domain.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

constexpr mode_t kDefaultMode = 0600;

// Never 0, and never one that an earlier daemon gave.
uint64_t RandomId() {
  uint64_t id = 0;
  while (id == 0) (void)!getrandom(&id, sizeof id, 0);  // 8 bytes come whole (getrandom(2)).
  return id;
}

bool In(const Identity& who, gid_t group) {
  return who.gid == group ||
         std::find(who.groups.begin(), who.groups.end(), group) != who.groups.end();
}

bool MayOpen(const Identity& who, const NamedDomain& domain) {
  if (who.uid == domain.owner) return (domain.mode & 0600) != 0;
  return (domain.mode & (In(who, domain.group) ? 0060 : 0006)) != 0;
}

// Whether a call that would have made this one finds what it asks for: as open(O_CREAT) in a
// directory of everybody's (fs.protected_regular of Linux). Else whoever is first with a name that
// can be guessed would be let into the memory of those who believe that they have made it.
bool AsAskedFor(const Identity& who, const OpenDomainSpec& spec, const NamedDomain& domain) {
  if (!spec.create || domain.owner == who.uid) return true;
  const mode_t mode = spec.mode == 0 ? kDefaultMode : spec.mode;
  if ((mode & 0006) != 0) return true;
  if ((domain.mode & 0006) != 0) return false;
  return (mode & 0060) != 0 && domain.group == (spec.group_given ? spec.group : who.gid);
}

// Names are for logs, terminals and other people's lists.
absl::Status CheckName(const std::string& name) {
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c < 0x80 && (isalnum(c) || c == '.' || c == '_' || c == '-' || c == ':');
  });
  if (plain && !name.empty() && name.size() <= NamedDomains::kMostNameBytes) {
    return absl::OkStatus();
  }
  return MakeError(v1::REQUEST_INVALID, "the domain's name is empty, too long or not plain",
                   {.limit_name = "bytes of a domain's name",
                    .limit = NamedDomains::kMostNameBytes,
                    .advice = "Use 1 to 64 of the characters A-Z a-z 0-9 . _ - :"});
}

absl::Status CheckMode(mode_t mode) {
  const auto both_or_none = [mode](int shift) {
    const mode_t digit = mode >> shift & 7;
    return digit == 0 || digit == 6;
  };
  if (mode <= 0666 && (mode & 0600) == 0600 && both_or_none(3) && both_or_none(0)) {
    return absl::OkStatus();
  }
  return MakeError(v1::REQUEST_INVALID, absl::StrFormat("mode 0%o is none of a domain", mode),
                   {.advice = "Members read and write one another's regions: use 0600, 0660, 0606 "
                              "or 0666"});
}

}  // namespace

absl::StatusOr<NamedDomainRef> NamedDomains::Open(const Identity& who, const OpenDomainSpec& spec) {
  if (auto named = CheckName(spec.name); !named.ok()) return named;
  NamedDomainRef domain;  // Declared before the lock: its last holder's end takes it.
  MutexLock lock(mutex_);
  const auto known = by_name_.find(spec.name);
  // One whose last member is just leaving is gone.
  if (known != by_name_.end()) domain = known->second.lock();
  if (!domain) {
    if (spec.create) return CreateLocked(who, spec);
    return MakeError(v1::DOMAIN_UNKNOWN, absl::StrCat("no domain ", spec.name),
                     {.advice = "It ends with its last member; set create to make it"});
  }
  if (MayOpen(who, *domain)) {
    if (AsAskedFor(who, spec, *domain)) return domain;
    return MakeError(v1::DOMAIN_FORBIDDEN,
                     absl::StrFormat("there is a domain %s already, of uid %d and gid %d with mode "
                                     "0%o: it admits others than this call asks for",
                                     spec.name, domain->owner, domain->group, domain->mode),
                     {.advice = "Open it without create to share with them, or choose another "
                                "name"});
  }
  return MakeError(
      v1::DOMAIN_FORBIDDEN,
      absl::StrFormat(
          "domain %s of uid %d and gid %d with mode 0%o does not admit uid %d and gid %d",
          spec.name, domain->owner, domain->group, domain->mode, who.uid, who.gid),
      {.advice = "Its owner decides who may, when making it; choose another name for your own"});
}

absl::StatusOr<NamedDomainRef> NamedDomains::CreateLocked(const Identity& who,
                                                          const OpenDomainSpec& spec) {
  const mode_t mode = spec.mode == 0 ? kDefaultMode : spec.mode;
  if (auto valid = CheckMode(mode); !valid.ok()) return valid;
  const gid_t group = spec.group_given ? spec.group : who.gid;
  if (!In(who, group)) {
    return MakeError(v1::REQUEST_INVALID, absl::StrCat("gid ", group, " is none of the caller's"),
                     {.advice = "Give a group that this process is in, or none"});
  }
  const auto known = by_owner_.find(who.uid);
  const size_t owned = known == by_owner_.end() ? 0 : known->second;
  if (owned >= kMostOfUser) {
    return MakeError(
        v1::QUOTA_DOMAINS, absl::StrCat("uid ", who.uid, " owns ", owned, " domains already"),
        {.limit_name = absl::StrCat("domains of uid ", who.uid),
         .limit = kMostOfUser,
         .used = owned,
         .advice = "Close domains that are not needed: each ends with its last member"});
  }
  return MakeLocked(RandomId(), {spec.name, who.uid, group, mode});
}

NamedDomainRef NamedDomains::MakeLocked(uint64_t id, const DomainView& domain) {
  ++by_owner_[domain.owner];
  NamedDomainRef made(new NamedDomain{id,
                                      std::make_shared<std::string>(domain.name),
                                      domain.owner,
                                      domain.group,
                                      domain.mode,
                                      {}},
                      [this](NamedDomain* ended) {
                        Ended(*ended);
                        delete ended;
                      });
  by_name_[domain.name] = made;
  return made;
}

NamedDomainRef NamedDomains::Adopt(uint64_t id, const DomainView& domain) {
  MutexLock lock(mutex_);
  const auto known = by_name_.find(domain.name);
  if (known != by_name_.end()) {
    if (auto alive = known->second.lock()) return alive->id == id ? alive : nullptr;
  }
  return MakeLocked(id, domain);
}

void NamedDomains::Ended(const NamedDomain& domain) {
  MutexLock lock(mutex_);
  const auto known = by_name_.find(*domain.name);
  // Another one may have the name by now.
  if (known != by_name_.end() && known->second.expired()) by_name_.erase(known);
  const auto owned = by_owner_.find(domain.owner);
  if (--owned->second == 0) by_owner_.erase(owned);
}

std::vector<DomainView> NamedDomains::List(const Identity& who) {
  std::vector<NamedDomainRef> domains;  // Declared before the lock, as above.
  std::vector<DomainView> views;
  MutexLock lock(mutex_);
  for (const auto& [name, weak] : by_name_) {
    auto domain = weak.lock();
    if (!domain) continue;
    if (MayOpen(who, *domain)) {
      views.push_back({*domain->name, domain->owner, domain->group, domain->mode});
    }
    domains.push_back(std::move(domain));
  }
  return views;
}

std::vector<DomainView> NamedDomains::ListAll(const std::string& after, size_t most) {
  std::vector<NamedDomainRef> domains;  // Declared before the lock, as above.
  std::vector<DomainView> views;
  MutexLock lock(mutex_);
  for (auto it = by_name_.upper_bound(after); it != by_name_.end() && views.size() < most; ++it) {
    auto domain = it->second.lock();
    if (!domain) continue;
    views.push_back({*domain->name, domain->owner, domain->group, domain->mode});
    domains.push_back(std::move(domain));
  }
  return views;
}

}  // namespace mrd::broker
