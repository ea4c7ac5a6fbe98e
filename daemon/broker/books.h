// What each account - a uid's, or a cgroup's where the policy says so - has, against what it may
// have. Booked before the thing itself is made, so that calls that race cannot pass one limit
// together.
#ifndef MRD_DAEMON_BROKER_BOOKS_H_
#define MRD_DAEMON_BROKER_BOOKS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "daemon/broker/limits.h"
#include "daemon/broker/policy/policy.h"
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

class Books;

// Who has things booked: a session, or a connection. Its rule and its account are those of the
// policy in force, found anew with each new one. Thread-safe; the books outlive it. What is still
// booked when it ends stays booked to its account for good.
class Holder : public std::enable_shared_from_this<Holder> {
 public:
  ~Holder();
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;

  // What applies to it now.
  policy::TermsRef terms() const;
  std::string account() const;
  uint32_t user() const;
  const policy::Subject& subject() const { return subject_; }

 private:
  friend class Books;
  Holder(Books& books, policy::Subject subject) : books_(books), subject_(std::move(subject)) {}

  Books& books_;
  const policy::Subject subject_;
  // Both are guarded by the books' lock.
  policy::Match match_;
  Amounts booked_;
};

using HolderRef = std::shared_ptr<Holder>;

// Thread-safe.
class Books {
 public:
  // With no rules.
  explicit Books(const Limits& limits);

  HolderRef Join(policy::Subject subject);

  // All of `amounts` for this holder's account, or nothing and QUOTA_SESSIONS, QUOTA_REGIONS,
  // QUOTA_BYTES, QUOTA_ENDPOINTS, QUOTA_BUFFERS, with the limit and what is used; or POLICY_DENIED,
  // for all but connections, where its rule refuses it. The same reasons where all accounts but
  // the admins' have the descriptors that there are for them.
  absl::Status Book(Holder& holder, const Amounts& amounts);
  // What there is already, whether there is room for it or not.
  void BookAnyhow(Holder& holder, const Amounts& amounts);
  // REQUIRES: it was booked.
  void Release(Holder& holder, const Amounts& amounts);

  // Puts a policy in force: each holder has its terms from then on, and what it has booked goes to
  // its account, whether that has room or not. Returns how many holders of sessions have other
  // terms or another account than before.
  size_t SetPolicy(policy::PolicyRef policy);
  policy::PolicyRef policy() const;

  Amounts Used(const std::string& account) const;
  Amounts Used(uint32_t uid) const { return Used(policy::AccountOfUid(uid)); }
  Amounts Total() const;
  // Of every uid that has something, whatever account it counts to.
  std::map<uint32_t, Amounts> ByUid() const;
  std::vector<QuotaView> Quotas(const Holder& holder) const;

 private:
  friend class Holder;

  void AddLocked(const std::string& account, const Amounts& amounts) MRD_REQUIRES(mutex_);
  absl::Status CheckDescriptorsLocked(const Amounts& amounts) const MRD_REQUIRES(mutex_);
  void RemoveLocked(const std::string& account, const Amounts& amounts) MRD_REQUIRES(mutex_);

  const uint64_t most_descriptors_;
  Mutex setting_;  // One policy at a time; before mutex_.
  mutable Mutex mutex_;
  policy::PolicyRef policy_ MRD_GUARDED_BY(mutex_);
  std::unordered_set<Holder*> holders_ MRD_GUARDED_BY(mutex_);
  // Without those that have nothing.
  std::unordered_map<std::string, Amounts> by_account_ MRD_GUARDED_BY(mutex_);
  Amounts total_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_BOOKS_H_
