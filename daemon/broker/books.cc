#include "daemon/broker/books.h"

#include <unistd.h>

#include <string>

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
     "End sessions that are not needed, or ask the operator for a higher limit"},
    {&Amounts::connections, &Limits::connections, v1::QUOTA_SESSIONS, "connections",
     "Use one connection a process, or ask the operator for a higher limit"},
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

std::string NameOf(const Account& account, uint32_t uid) {
  return absl::StrCat(account.name, " of uid ", uid);
}

}  // namespace

Limits WithDefaults(Limits limits) {
  if (limits.pinned_bytes == 0) {
    limits.pinned_bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 2;
  }
  return limits;
}

Amounts& Amounts::operator+=(const Amounts& other) {
  for (const Account& account : kAccounts) this->*account.amount += other.*account.amount;
  return *this;
}

Amounts& Amounts::operator-=(const Amounts& other) {
  for (const Account& account : kAccounts) this->*account.amount -= other.*account.amount;
  return *this;
}

absl::Status Books::Book(uint32_t uid, const Amounts& amounts) {
  MutexLock lock(mutex_);
  const auto entry = by_uid_.find(uid);
  const Amounts used = entry == by_uid_.end() ? Amounts{} : entry->second;
  for (const Account& account : kAccounts) {
    const uint64_t wanted = amounts.*account.amount;
    const uint64_t limit = limits_.*account.limit;
    const uint64_t have = used.*account.amount;
    if (wanted == 0 || (have <= limit && wanted <= limit - have)) continue;
    return MakeError(account.reason,
                     absl::StrCat(wanted, " more would pass the limit of ", limit, " ",
                                  NameOf(account, uid), ", of which ", have, " are in use"),
                     {.limit_name = NameOf(account, uid),
                      .limit = limit,
                      .used = have,
                      .advice = account.advice});
  }
  by_uid_[uid] += amounts;
  total_ += amounts;
  return absl::OkStatus();
}

void Books::Release(uint32_t uid, const Amounts& amounts) {
  MutexLock lock(mutex_);
  const auto entry = by_uid_.find(uid);
  entry->second -= amounts;
  if (entry->second == Amounts{}) by_uid_.erase(entry);
  total_ -= amounts;
}

Amounts Books::Used(uint32_t uid) const {
  MutexLock lock(mutex_);
  const auto entry = by_uid_.find(uid);
  return entry == by_uid_.end() ? Amounts{} : entry->second;
}

Amounts Books::Total() const {
  MutexLock lock(mutex_);
  return total_;
}

std::map<uint32_t, Amounts> Books::All() const {
  MutexLock lock(mutex_);
  return {by_uid_.begin(), by_uid_.end()};
}

std::vector<QuotaView> Books::Quotas(uint32_t uid) const {
  const Amounts used = Used(uid);
  std::vector<QuotaView> quotas;
  for (const Account& account : kAccounts) {
    quotas.push_back({NameOf(account, uid), limits_.*account.limit, used.*account.amount});
  }
  return quotas;
}

}  // namespace mrd::broker
