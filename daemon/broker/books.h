// What each uid has, against what it may have. Booked before the thing itself is made, so that
// calls that race cannot pass one limit together.
#ifndef MRD_DAEMON_BROKER_BOOKS_H_
#define MRD_DAEMON_BROKER_BOOKS_H_

#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "daemon/broker/limits.h"
#include "daemon/mutex.h"

namespace mrd::broker {

struct Amounts {
  uint64_t sessions = 0;
  uint64_t connections = 0;
  uint64_t regions = 0;
  uint64_t bytes = 0;
  uint64_t endpoints = 0;
  uint64_t buffers = 0;

  Amounts& operator+=(const Amounts& other);
  Amounts& operator-=(const Amounts& other);
  bool operator==(const Amounts&) const = default;
};

struct QuotaView {
  std::string name;
  uint64_t limit;
  uint64_t used;
};

// Thread-safe.
class Books {
 public:
  explicit Books(const Limits& limits) : limits_(limits) {}

  // All of `amounts` for this uid, or nothing and QUOTA_SESSIONS, QUOTA_REGIONS, QUOTA_BYTES,
  // QUOTA_ENDPOINTS, QUOTA_BUFFERS, with the limit and what is used.
  absl::Status Book(uint32_t uid, const Amounts& amounts);
  // REQUIRES: it was booked.
  void Release(uint32_t uid, const Amounts& amounts);

  Amounts Used(uint32_t uid) const;
  Amounts Total() const;
  // Of every uid that has something.
  std::map<uint32_t, Amounts> All() const;
  std::vector<QuotaView> Quotas(uint32_t uid) const;

 private:
  const Limits limits_;
  mutable Mutex mutex_;
  std::unordered_map<uint32_t, Amounts> by_uid_
      MRD_GUARDED_BY(mutex_);  // Without those that have nothing.
  Amounts total_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_BOOKS_H_
