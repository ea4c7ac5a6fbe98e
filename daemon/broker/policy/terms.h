// What a client may have and do, by the rule that applies to it or by the built-in defaults.
#ifndef MRD_DAEMON_BROKER_POLICY_TERMS_H_
#define MRD_DAEMON_BROKER_POLICY_TERMS_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/broker/limits.h"
#include "daemon/fabric/access.h"
#include "mrd/v1/policy.pb.h"

namespace mrd::policy {

inline constexpr std::chrono::hours kMostTtl{365 * 24};

struct Ttl {
  std::chrono::nanoseconds min = std::chrono::seconds(1);
  std::optional<std::chrono::nanoseconds> max;
  std::optional<std::chrono::nanoseconds> when_unasked;

  bool operator==(const Ttl&) const = default;
};

inline constexpr fabric::AccessMask kAllAccess = ~fabric::AccessMask{0};

// Immutable once it is in force, and shared by all that it applies to.
struct Terms {
  std::string rule;  // Empty: the built-in defaults.
  bool deny = false;
  broker::Limits limits;  // Those of an account and of a session hold; the daemon's own do not.
  Ttl ttl;
  std::vector<std::string> devices;  // Patterns; none: all.
  fabric::AccessMask access = kAllAccess;
  bool unsealed = false;
  bool named_domains = true;

  bool operator==(const Terms&) const = default;

  // 'rule "pods" of the policy', or "the built-in defaults": for messages.
  std::string Source() const;

  // What a lease gets whose call asks for this, which is not negative and 0 where it asks for
  // nothing. 0: as long as its session.
  std::chrono::nanoseconds ClampTtl(std::chrono::nanoseconds asked) const;

  bool Allows(const std::string& device) const;
  // POLICY_DENIED, with the rule and what to do, or OK.
  absl::Status CheckNotDenied() const;
  absl::Status CheckDevice(const std::string& device) const;
  absl::Status CheckAccess(fabric::AccessMask asked) const;
  absl::Status CheckNamedDomain() const;
  // Of a registration.
  absl::Status CheckRegistration(const std::vector<std::string>& devices,
                                 fabric::AccessMask access) const;
};

using TermsRef = std::shared_ptr<const Terms>;

// For clients and operators; `applied` is empty before. Leaves `account` alone.
void ToProto(const Terms& terms, v1::AppliedPolicy* applied);

// The limits that a rule may set, and where they are.
struct LimitField {
  const char* name;  // In RuleLimits.
  uint64_t (*get)(const broker::Limits& limits);
  void (*set)(broker::Limits& limits, uint64_t value);
};
const std::vector<LimitField>& LimitFields();

}  // namespace mrd::policy

#endif  // MRD_DAEMON_BROKER_POLICY_TERMS_H_
