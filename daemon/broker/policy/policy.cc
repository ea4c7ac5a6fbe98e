#include "daemon/broker/policy/policy.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace mrd::policy {
namespace {

std::chrono::nanoseconds From(const google::protobuf::Duration& duration) {
  return std::chrono::seconds(duration.seconds()) + std::chrono::nanoseconds(duration.nanos());
}

Terms TermsOf(const v1::Rule& rule, const Terms& built_in) {
  Terms terms = built_in;
  terms.rule = rule.name();
  terms.deny = rule.deny();
  const v1::RuleLimits& limits = rule.limits();
  for (const LimitField& field : LimitFields()) {
    const auto* descriptor = v1::RuleLimits::descriptor()->FindFieldByName(field.name);
    if (!limits.GetReflection()->HasField(limits, descriptor)) continue;
    field.set(terms.limits, limits.GetReflection()->GetUInt64(limits, descriptor));
  }
  if (rule.ttl().has_min()) terms.ttl.min = From(rule.ttl().min());
  if (rule.ttl().has_max()) terms.ttl.max = From(rule.ttl().max());
  if (rule.ttl().has_default_()) terms.ttl.when_unasked = From(rule.ttl().default_());
  terms.devices.assign(rule.devices().begin(), rule.devices().end());
  if (!rule.access().empty()) terms.access = 0;
  for (const int flag : rule.access()) terms.access |= fabric::Bit(v1::AccessFlag(flag));
  if (rule.has_unsealed()) terms.unsealed = rule.unsealed();
  if (rule.has_named_domains()) terms.named_domains = rule.named_domains();
  return terms;
}

TermsRef Bounded(Terms terms, const broker::Limits& ceiling) {
  for (const LimitField& field : LimitFields()) {
    field.set(terms.limits, std::min(field.get(terms.limits), field.get(ceiling)));
  }
  return std::make_shared<const Terms>(std::move(terms));
}

}  // namespace

std::string AccountOfUid(uint32_t uid) { return absl::StrCat("uid ", uid); }

broker::Limits Policy::Unbounded() {
  broker::Limits limits;
  for (const LimitField& field : LimitFields()) field.set(limits, UINT64_MAX);
  return limits;
}

Policy::Policy(v1::Policy rules, const broker::Limits& built_in, const broker::Limits& ceiling)
    : source_(std::move(rules)) {
  Terms terms;
  terms.limits = broker::WithDefaults(built_in);
  terms.unsealed = built_in.unsealed;
  for (const v1::Rule& rule : source_.rules()) {
    compiled_.push_back({Matcher(rule), Bounded(TermsOf(rule, terms), ceiling)});
  }
  built_in_ = Bounded(std::move(terms), ceiling);
}

Match Policy::Find(const Subject& subject) const {
  const auto with = [&subject](const TermsRef& terms, const std::string& cgroup) -> Match {
    if (subject.admin) return {terms, "admins", kAdmins};
    if (cgroup.empty()) return {terms, AccountOfUid(subject.uid), subject.uid};
    return {terms, "cgroup " + cgroup, static_cast<uint32_t>(absl::HashOf(cgroup))};
  };
  for (const Compiled& rule : compiled_) {
    std::string cgroup;
    if (rule.matcher.Matches(subject, &cgroup)) return with(rule.terms, cgroup);
  }
  return with(built_in_, "");
}

std::string Policy::ChangesTo(const Policy& next) const {
  std::map<std::string, std::string> before;
  for (const v1::Rule& rule : source_.rules()) before[rule.name()] = rule.SerializeAsString();
  std::vector<std::string> added, changed, removed;
  std::vector<std::string> order_before, order_after;  // Of the rules that are in both.
  for (const v1::Rule& rule : next.source_.rules()) {
    const auto found = before.find(rule.name());
    if (found == before.end()) {
      added.push_back(rule.name());
      continue;
    }
    if (found->second != rule.SerializeAsString()) changed.push_back(rule.name());
    order_after.push_back(rule.name());
    before.erase(found);
  }
  for (const v1::Rule& rule : source_.rules()) {
    (before.count(rule.name()) > 0 ? removed : order_before).push_back(rule.name());
  }
  std::vector<std::string> parts;
  const auto tell = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) parts.push_back(absl::StrCat(what, " ", absl::StrJoin(names, ", ")));
  };
  tell("added", added);
  tell("removed", removed);
  tell("changed", changed);
  if (order_before != order_after) parts.push_back("another order");
  return parts.empty() ? "nothing changed" : absl::StrJoin(parts, "; ");
}

}  // namespace mrd::policy
