#include "daemon/broker/books.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

struct Account {
  uint64_t Amounts::*amount;
  uint64_t Limits::*limit;
  v1::Reason reason;
  const char* name;
  const char* advice;
};

constexpr Account kAccounts[] = {
    {&Amounts::sessions, &Limits::sessions, v1::QUOTA_SESSIONS, "sessions",
     "End sessions that are not needed, or ask the operator for a higher limit, of the policy or "
     "LimitNOFILE"},
    {&Amounts::connections, &Limits::connections, v1::QUOTA_SESSIONS, "connections",
     "Use one connection a process, or ask the operator for a higher limit, of the policy or "
     "LimitNOFILE"},
    {&Amounts::regions, &Limits::regions, v1::QUOTA_REGIONS, "regions",
     "Deregister what is not needed, register larger ranges, or ask the operator for a higher "
     "limit"},
    {&Amounts::bytes, &Limits::pinned_bytes, v1::QUOTA_BYTES, "pinned bytes",
     "Deregister what is not needed, or ask the operator for a higher limit"},
    {&Amounts::endpoints, &Limits::endpoints, v1::QUOTA_ENDPOINTS, "endpoints",
     "Disconnect endpoints that are not needed, or ask the operator for a higher limit"},
    {&Amounts::buffers, &Limits::buffers_of_uid, v1::QUOTA_BUFFERS, "buffers",
     "Release buffers (release_after does it at once), or ask the operator for a higher limit"},
};

// Of the daemon's. A session's: its socket and a pidfd; a connection's: gRPC's, and one that tells
// its end.
uint64_t Descriptors(const Amounts& amounts) {
  return 2 * amounts.sessions + 2 * amounts.connections + amounts.endpoints + amounts.buffers;
}

// What an amount of an account is called: "pinned bytes of uid 1000".
std::string NameOf(const Account& account, const std::string& of) {
  return absl::StrCat(account.name, " of ", of);
}

// Of sessions and what they hold; what a connection is for is told by its calls only.
bool MayBeDenied(const Amounts& amounts) {
  Amounts others = amounts;
  others.connections = 0;
  return others != Amounts{};
}

}  // namespace

Amounts& Amounts::operator+=(const Amounts& other) {
  for (const Account& account : kAccounts) this->*account.amount += other.*account.amount;
  return *this;
}

Amounts& Amounts::operator-=(const Amounts& other) {
  for (const Account& account : kAccounts) this->*account.amount -= other.*account.amount;
  return *this;
}

Holder::~Holder() {
  MutexLock lock(books_.mutex_);
  books_.holders_.erase(this);
}

policy::TermsRef Holder::terms() const {
  MutexLock lock(books_.mutex_);
  return match_.terms;
}

std::string Holder::account() const {
  MutexLock lock(books_.mutex_);
  return match_.account;
}

uint32_t Holder::user() const {
  MutexLock lock(books_.mutex_);
  return match_.user;
}

Books::Books(const Limits& limits)
    : most_descriptors_(limits.descriptors),
      policy_(std::make_shared<const policy::Policy>(limits)) {}

absl::Status Books::CheckDescriptorsLocked(const Amounts& amounts) const {
  const uint64_t wanted = Descriptors(amounts);
  const uint64_t have = Descriptors(total_);
  if (wanted == 0 || (have <= most_descriptors_ && wanted <= most_descriptors_ - have)) {
    return absl::OkStatus();
  }
  v1::Reason reason = v1::QUOTA_SESSIONS;
  for (const Account& account : kAccounts) {
    if (amounts.*account.amount > 0) reason = account.reason;
  }
  return MakeError(reason,
                   absl::StrCat("clients hold ", have, " of the ", most_descriptors_,
                                " descriptors that the daemon has for all of them"),
                   {.limit_name = "descriptors for clients",
                    .limit = most_descriptors_,
                    .used = have,
                    .advice = "Try again later; the operator can raise LimitNOFILE, and see by "
                              "mrctl top who has how many"});
}

void Books::AddLocked(const std::string& account, const Amounts& amounts) {
  if (amounts != Amounts{}) by_account_[account] += amounts;
}

void Books::RemoveLocked(const std::string& account, const Amounts& amounts) {
  const auto entry = by_account_.find(account);
  if (entry == by_account_.end()) return;  // Nothing was booked.
  entry->second -= amounts;
  if (entry->second == Amounts{}) by_account_.erase(entry);
}

HolderRef Books::Join(policy::Subject subject) {
  HolderRef holder(new Holder(*this, std::move(subject)));
  for (policy::PolicyRef current = policy();;) {
    policy::Match match = current->Find(holder->subject_);
    MutexLock lock(mutex_);
    // Else SetPolicy has not seen this holder, and will not.
    if (policy_ == current) {
      holder->match_ = std::move(match);
      holders_.insert(holder.get());
      return holder;
    }
    current = policy_;
  }
}

absl::Status Books::Book(Holder& holder, const Amounts& amounts) {
  MutexLock lock(mutex_);
  const policy::Terms& terms = *holder.match_.terms;
  const std::string& of = holder.match_.account;
  if (terms.deny && !holder.subject_.admin && MayBeDenied(amounts)) return terms.CheckNotDenied();
  const auto entry = by_account_.find(of);
  const Amounts used = entry == by_account_.end() ? Amounts{} : entry->second;
  for (const Account& account : kAccounts) {
    const uint64_t wanted = amounts.*account.amount;
    const uint64_t limit = terms.limits.*account.limit;
    const uint64_t have = used.*account.amount;
    if (wanted == 0 || (have <= limit && wanted <= limit - have)) continue;
    return MakeError(
        account.reason,
        absl::StrCat(wanted, " more would pass the limit of ", limit, " ", NameOf(account, of),
                     ", of which ", have, " are in use (", terms.Source(), ")"),
        {.limit_name = NameOf(account, of),
         .limit = limit,
         .used = have,
         .advice = account.advice});
  }
  if (!holder.subject_.admin) {
    if (auto room = CheckDescriptorsLocked(amounts); !room.ok()) return room;
  }
  AddLocked(of, amounts);
  holder.booked_ += amounts;
  total_ += amounts;
  return absl::OkStatus();
}

void Books::BookAnyhow(Holder& holder, const Amounts& amounts) {
  MutexLock lock(mutex_);
  AddLocked(holder.match_.account, amounts);
  holder.booked_ += amounts;
  total_ += amounts;
}

void Books::Release(Holder& holder, const Amounts& amounts) {
  MutexLock lock(mutex_);
  RemoveLocked(holder.match_.account, amounts);
  holder.booked_ -= amounts;
  total_ -= amounts;
}

size_t Books::SetPolicy(policy::PolicyRef policy) {
  MutexLock one_at_a_time(setting_);
  std::vector<HolderRef>
      holders;  // Declared before the lock: where one is the last, it ends after.
  {
    MutexLock lock(mutex_);
    policy_ = policy;
    for (Holder* holder : holders_) {
      if (HolderRef held = holder->weak_from_this().lock()) holders.push_back(std::move(held));
    }
  }
  size_t changed = 0;
  for (const HolderRef& holder : holders) {
    // Matching may take long with many rules: calls that book go on all the while.
    policy::Match match = policy->Find(holder->subject_);
    MutexLock lock(mutex_);
    RemoveLocked(holder->match_.account, holder->booked_);
    AddLocked(match.account, holder->booked_);
    changed += holder->booked_.sessions > 0 && (holder->match_.account != match.account ||
                                                !(*holder->match_.terms == *match.terms));
    holder->match_ = std::move(match);
  }
  return changed;
}

policy::PolicyRef Books::policy() const {
  MutexLock lock(mutex_);
  return policy_;
}

Amounts Books::Used(const std::string& account) const {
  MutexLock lock(mutex_);
  const auto entry = by_account_.find(account);
  return entry == by_account_.end() ? Amounts{} : entry->second;
}

Amounts Books::Total() const {
  MutexLock lock(mutex_);
  return total_;
}

std::map<uint32_t, Amounts> Books::ByUid() const {
  std::map<uint32_t, Amounts> by_uid;
  MutexLock lock(mutex_);
  for (const Holder* holder : holders_) {
    if (holder->booked_ != Amounts{}) by_uid[holder->subject_.uid] += holder->booked_;
  }
  return by_uid;
}

std::vector<QuotaView> Books::Quotas(const Holder& holder) const {
  MutexLock lock(mutex_);
  const std::string& of = holder.match_.account;
  const auto entry = by_account_.find(of);
  const Amounts used = entry == by_account_.end() ? Amounts{} : entry->second;
  std::vector<QuotaView> quotas;
  for (const Account& account : kAccounts) {
    quotas.push_back(
        {NameOf(account, of), holder.match_.terms->limits.*account.limit, used.*account.amount});
  }
  return quotas;
}

}  // namespace mrd::broker
