// The policy in force: which rule applies to a client, and over what its limits count.
#ifndef MRD_DAEMON_BROKER_POLICY_POLICY_H_
#define MRD_DAEMON_BROKER_POLICY_POLICY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/broker/limits.h"
#include "daemon/broker/policy/id_set.h"
#include "daemon/broker/policy/terms.h"
#include "mrd/v1/policy.pb.h"

namespace mrd::policy {

// Who a client is, as far as rules look at it; by the kernel's word.
struct Subject {
  uint32_t uid = 0;
  std::vector<uint32_t> gids = {};  // The primary one and the supplementary ones.
  std::string cgroup = {};          // Empty: not known.
  bool admin = false;  // Is not refused by `deny`, and counts with no others than admins.
};

// A user that no process is. Containers have a uid 0 as well, and must not lock the operator out
// by what they do with it.
inline constexpr uint32_t kAdmins = UINT32_MAX;

struct Match {
  TermsRef terms;
  std::string account;  // "uid 1000", "cgroup /kubepods.slice/pod7", "admins"
  // The same as a number, for what the daemon itself bounds by user: the uid, where that is the
  // account. Two cgroups have the same by chance only, and then share those bounds.
  uint32_t user = 0;
};

std::string AccountOfUid(uint32_t uid);

// The clients that a rule matches.
class Matcher {
 public:
  // REQUIRES: the rule is valid (check.h).
  explicit Matcher(const v1::Rule& rule);

  // Where the rule names cgroups, *cgroup is set to that over which its limits count.
  bool Matches(const Subject& subject, std::string* cgroup) const;
  // True only where this matches every client that `other` does; false says nothing.
  bool Covers(const Matcher& other) const;
  // Whether they are the same, apart from their order.
  bool SameAs(const Matcher& other) const;
  bool MatchesAll() const { return any_uid_ && any_gid_ && cgroups_.empty(); }

 private:
  bool any_uid_ = false;
  bool any_gid_ = false;
  IdSet uids_;
  IdSet gids_;
  std::vector<std::string> cgroups_;  // Sorted.
};

// Immutable, so thread-safe.
class Policy {
 public:
  // No rules.
  explicit Policy(const broker::Limits& built_in) : Policy(v1::Policy(), built_in, Unbounded()) {}
  // No limit is higher than in `ceiling`, whatever a rule says. REQUIRES: `rules` are valid.
  Policy(v1::Policy rules, const broker::Limits& built_in, const broker::Limits& ceiling);

  Match Find(const Subject& subject) const;
  size_t rules() const { return source_.rules_size(); }
  // What a change to `next` is, in one line.
  std::string ChangesTo(const Policy& next) const;

  // As high as they go.
  static broker::Limits Unbounded();

 private:
  struct Compiled {
    Matcher matcher;
    TermsRef terms;
  };

  const v1::Policy source_;
  TermsRef built_in_;
  std::vector<Compiled> compiled_;
};

using PolicyRef = std::shared_ptr<const Policy>;

}  // namespace mrd::policy

#endif  // MRD_DAEMON_BROKER_POLICY_POLICY_H_
