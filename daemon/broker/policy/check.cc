#include "daemon/broker/policy/check.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/broker/limits.h"
#include "daemon/broker/policy/glob.h"
#include "daemon/broker/policy/policy.h"
#include "daemon/broker/policy/text.h"

namespace mrd::policy {
namespace {

using Places = google::protobuf::TextFormat::ParseInfoTree;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

constexpr size_t kMostNameBytes = 64;

// One message of the text: where its fields are.
class Scope {
 public:
  Scope(const Descriptor* type, const Places* places, int line, int column, Parsed* parsed)
      : type_(type), places_(places), line_(line), column_(column), parsed_(parsed) {}

  // Of a field's value (the index-th where it is repeated), or of the message where it is unset.
  void Tell(const char* field, int index, std::string what) const {
    const auto [line, column] = At(field, index);
    parsed_->problems.push_back({line, column, std::move(what)});
  }
  void Tell(const char* field, std::string what) const { Tell(field, -1, std::move(what)); }

  Scope Nested(const char* field, int index) const {
    const FieldDescriptor* descriptor = type_->FindFieldByName(field);
    const auto [line, column] = At(field, index);
    const Places* places = places_ ? places_->GetTreeForNested(descriptor, index) : nullptr;
    return Scope(descriptor->message_type(), places, line, column, parsed_);
  }

  std::pair<int, int> At(const char* field, int index) const {
    const FieldDescriptor* descriptor = type_->FindFieldByName(field);
    if (descriptor->is_repeated() && index < 0) index = 0;
    // Values that are written as a list, [a, b], have one place together.
    for (; places_ && index >= -1; --index) {
      if (descriptor->is_repeated() && index < 0) break;
      const auto at = places_->GetLocation(descriptor, index);
      if (at.line >= 0) return {at.line + 1, at.column + 1};
    }
    return {line_, column_};
  }

 private:
  const Descriptor* type_;
  const Places* places_;  // Null: not known.
  int line_;              // Of the message itself.
  int column_;
  Parsed* parsed_;
};

void CheckName(const v1::Rule& rule, const Scope& at) {
  const std::string& name = rule.name();
  if (name.empty()) return at.Tell("name", "the rule has no name; messages need one");
  if (name.size() > kMostNameBytes) {
    return at.Tell("name", absl::StrCat("the name is longer than ", kMostNameBytes, " bytes"));
  }
  if (!IsPrintable(name) || name.find('"') != name.npos) {
    at.Tell("name", "the name has control characters or quotes, or is not UTF-8");
  }
}

template <typename Ranges>
void CheckRanges(const char* field, const Ranges& ranges, const Scope& at) {
  for (int i = 0; i < ranges.size(); ++i) {
    if (ranges[i].first() <= ranges[i].last()) continue;
    at.Tell(field, i,
            absl::StrCat("first (", ranges[i].first(), ") is above last (", ranges[i].last(), ")"));
  }
}

template <typename Patterns>
void CheckPatterns(const char* field, const Patterns& patterns,
                   std::string (*problem)(std::string_view), const Scope& at) {
  if (patterns.size() > kMostPatterns) {
    at.Tell(field, kMostPatterns, absl::StrCat("more than ", kMostPatterns, " in one rule"));
  }
  for (int i = 0; i < patterns.size(); ++i) {
    std::string what = problem(patterns[i]);
    if (what.empty() && !IsPrintable(patterns[i])) {
      what = "it has control characters, or is not UTF-8";
    }
    if (what.empty()) continue;
    at.Tell(field, i,
            absl::StrCat("pattern \"", Printable(std::string_view(patterns[i]).substr(0, 80)),
                         "\": ", what));
  }
}

void CheckLimits(const v1::RuleLimits& limits, const Scope& at) {
  const std::string nobody = " must be at least 1; `deny` refuses clients";
  if (limits.has_sessions() && limits.sessions() == 0) at.Tell("sessions", "sessions" + nobody);
  if (limits.has_connections() && limits.connections() == 0) {
    at.Tell("connections", "connections" + nobody);
  }
  const uint64_t most = broker::Limits().calls;
  if (limits.has_calls_per_session() &&
      (limits.calls_per_session() == 0 || limits.calls_per_session() > most)) {
    at.Tell("calls_per_session", absl::StrCat("calls_per_session must be 1 to ", most));
  }
}

// True: it can be compared.
bool CheckDuration(const char* field, const google::protobuf::Duration& duration, const Scope& at) {
  constexpr int64_t kMost = std::chrono::seconds(kMostTtl).count();
  const bool sane = duration.nanos() >= 0 && duration.nanos() < 1'000'000'000 &&
                    duration.seconds() >= 0 && duration.seconds() <= kMost;
  const bool zero = duration.seconds() == 0 && duration.nanos() == 0;
  const bool long_ = duration.seconds() == kMost && duration.nanos() > 0;
  if (sane && !zero && !long_) return true;
  at.Tell(field, absl::StrCat(field, " must be more than 0 and at most ", kMost,
                              " seconds (365 days), with nanos from 0 to 999999999"));
  return false;
}

bool Less(const google::protobuf::Duration& a, const google::protobuf::Duration& b) {
  return std::pair(a.seconds(), a.nanos()) < std::pair(b.seconds(), b.nanos());
}

void CheckTtl(const v1::RuleTtl& ttl, const Scope& at) {
  bool sane = true;
  if (ttl.has_min()) sane &= CheckDuration("min", ttl.min(), at);
  if (ttl.has_max()) sane &= CheckDuration("max", ttl.max(), at);
  if (ttl.has_default_()) sane &= CheckDuration("default", ttl.default_(), at);
  if (!sane) return;
  google::protobuf::Duration min = ttl.min();
  if (!ttl.has_min()) min.set_seconds(std::chrono::floor<std::chrono::seconds>(Ttl().min).count());
  const char* const built_in = ttl.has_min() ? "" : " (1 second where it is unset)";
  if (ttl.has_max() && Less(ttl.max(), min)) {
    at.Tell("max", absl::StrCat("max is below min", built_in));
  }
  if (ttl.has_default_() && Less(ttl.default_(), min)) {
    at.Tell("default", absl::StrCat("default is below min", built_in));
  }
  if (ttl.has_default_() && ttl.has_max() && Less(ttl.max(), ttl.default_())) {
    at.Tell("default", "default is above max");
  }
}

void CheckRule(const v1::Rule& rule, const Scope& at) {
  CheckName(rule, at);
  CheckRanges("uid_range", rule.uid_range(), at);
  CheckRanges("gid_range", rule.gid_range(), at);
  CheckPatterns("cgroup", rule.cgroup(), PathGlobProblem, at);
  CheckPatterns("devices", rule.devices(), NameGlobProblem, at);
  if (rule.has_limits()) CheckLimits(rule.limits(), at.Nested("limits", -1));
  if (rule.has_ttl()) CheckTtl(rule.ttl(), at.Nested("ttl", -1));
  fabric::AccessMask access = 0;
  for (int i = 0; i < rule.access_size(); ++i) {
    const int flag = rule.access(i);
    if (flag <= v1::ACCESS_FLAG_UNSPECIFIED || !v1::AccessFlag_IsValid(flag)) {
      at.Tell("access", i, "this is no access flag");
    } else {
      access |= fabric::Bit(static_cast<v1::AccessFlag>(flag));
    }
  }
  if (fabric::LacksLocalWrite(access)) {
    at.Tell("access", "REMOTE_WRITE and REMOTE_ATOMIC are of no use without LOCAL_WRITE");
  }
  const bool grants = rule.has_limits() || rule.has_ttl() || !rule.devices().empty() ||
                      !rule.access().empty() || rule.has_unsealed() || rule.has_named_domains();
  if (rule.deny() && grants) {
    at.Tell("deny", "the rule denies: its limits and what it allows would never apply");
  }
}

// Between rules. REQUIRES: each is sane by itself.
void CheckOrder(const v1::Policy& policy, const Scope& at, Parsed* parsed) {
  std::vector<Matcher> matchers;
  bool overflow = false;
  bool all = false;
  for (int i = 0; i < policy.rules_size(); ++i) {
    const v1::Rule& rule = policy.rules(i);
    Matcher matcher(rule);
    for (int j = 0; j < i; ++j) {
      if (!matchers[j].Covers(matcher)) continue;
      const std::string earlier = absl::StrCat("rule \"", policy.rules(j).name(), "\" (line ",
                                               at.At("rules", j).first, ")");
      at.Tell("rules", i,
              matchers[j].SameAs(matcher)
                  ? absl::StrCat("rule \"", rule.name(), "\" matches the same clients as ", earlier)
                  : absl::StrCat("rule \"", rule.name(), "\" never applies: ", earlier,
                                 " matches all that it matches; put it before that one"));
      break;
    }
    // Anybody in no known cgroup and without groups: who only a rule for all matches.
    std::string cgroup;
    overflow |= matcher.Matches({.uid = kOverflowId}, &cgroup);
    all |= matcher.MatchesAll();
    matchers.push_back(std::move(matcher));
  }
  if (all && !overflow) {
    parsed->notes.push_back(
        "the overflow uid 65534 (nobody) has the built-in defaults: no rule lists it by itself; "
        "add "
        "a rule with `uid: 65534` to limit or deny it");
  }
}

}  // namespace

void Check(const v1::Policy& policy, const Places& places, Parsed* parsed) {
  const Scope top(v1::Policy::descriptor(), &places, 1, 1, parsed);
  if (policy.rules_size() > kMostRules) {
    return top.Tell("rules", kMostRules, absl::StrCat("more than ", kMostRules, " rules"));
  }
  std::map<std::string, int> names;
  for (int i = 0; i < policy.rules_size(); ++i) {
    const Scope at = top.Nested("rules", i);
    CheckRule(policy.rules(i), at);
    const auto [named, fresh] = names.emplace(policy.rules(i).name(), i);
    if (fresh || policy.rules(i).name().empty()) continue;
    at.Tell("name", absl::StrCat("rule \"", Printable(policy.rules(i).name()),
                                 "\" has the name of the one in line ",
                                 top.At("rules", named->second).first));
  }
  if (parsed->ok()) CheckOrder(policy, top, parsed);
}

}  // namespace mrd::policy
