#include "daemon/broker/policy/terms.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/broker/policy/glob.h"
#include "mrd/v1/status.h"

namespace mrd::policy {
namespace {

using broker::Limits;

template <auto Member>
constexpr LimitField Field(const char* name) {
  return {name, [](const Limits& limits) { return uint64_t{limits.*Member}; },
          [](Limits& limits, uint64_t value) { limits.*Member = value; }};
}

absl::Status Denied(const Terms& terms, const std::string& what, const std::string& advice) {
  return MakeError(v1::POLICY_DENIED, absl::StrCat(what, " by ", terms.Source()),
                   {.advice = advice});
}

void ToProto(std::chrono::nanoseconds time, google::protobuf::Duration* duration) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  duration->set_seconds(seconds.count());
  duration->set_nanos(static_cast<int32_t>((time - seconds).count()));
}

}  // namespace

const std::vector<LimitField>& LimitFields() {
  static const auto* fields = new std::vector<LimitField>{
      Field<&Limits::sessions>("sessions"),           Field<&Limits::connections>("connections"),
      Field<&Limits::pinned_bytes>("pinned_bytes"),   Field<&Limits::regions>("regions"),
      Field<&Limits::endpoints>("endpoints"),         Field<&Limits::buffers_of_uid>("buffers"),
      Field<&Limits::buffers>("buffers_per_session"), Field<&Limits::calls>("calls_per_session")};
  return *fields;
}

std::string Terms::Source() const {
  return rule.empty() ? "the built-in defaults" : absl::StrCat("rule \"", rule, "\" of the policy");
}

std::chrono::nanoseconds Terms::ClampTtl(std::chrono::nanoseconds asked) const {
  const std::chrono::nanoseconds most = ttl.max.value_or(kMostTtl);
  if (asked.count() == 0) asked = ttl.when_unasked.value_or(ttl.max.value_or(asked));
  if (asked.count() == 0) return asked;
  return std::clamp(asked, ttl.min, most);
}

bool Terms::Allows(const std::string& device) const {
  return devices.empty() ||
         std::any_of(devices.begin(), devices.end(),
                     [&](const std::string& glob) { return NameMatches(glob, device); });
}

absl::Status Terms::CheckNotDenied() const {
  if (!deny) return absl::OkStatus();
  return Denied(*this, "this client is refused",
                "Ask the operator to let it in: `mrctl policy explain` tells which rule applies "
                "to whom");
}

absl::Status Terms::CheckDevice(const std::string& device) const {
  if (Allows(device)) return absl::OkStatus();
  return Denied(*this, absl::StrCat("device ", device, " is not allowed"),
                absl::StrCat("Use a device that it allows (", absl::StrJoin(devices, ", "),
                             "), or ask the operator to add this one to its devices"));
}

absl::Status Terms::CheckAccess(fabric::AccessMask asked) const {
  const fabric::AccessMask refused = asked & ~access;
  if (refused == 0) return absl::OkStatus();
  std::vector<std::string> names;
  for (int flag = v1::AccessFlag_MIN + 1; flag <= v1::AccessFlag_MAX; ++flag) {
    if ((refused & fabric::Bit(static_cast<v1::AccessFlag>(flag))) != 0) {
      names.push_back(v1::AccessFlag_Name(static_cast<v1::AccessFlag>(flag)));
    }
  }
  return Denied(*this, absl::StrCat("access ", absl::StrJoin(names, ", "), " is not allowed"),
                "Leave it out, or ask the operator to add it to the rule's access");
}

absl::Status Terms::CheckNamedDomain() const {
  if (named_domains) return absl::OkStatus();
  return Denied(*this, "a domain with a name is not allowed",
                "Leave the name out: the session has a private domain on each device; or ask the "
                "operator to set named_domains in the rule");
}

absl::Status Terms::CheckRegistration(const std::vector<std::string>& on,
                                      fabric::AccessMask asked) const {
  for (const std::string& device : on) {
    if (auto allowed = CheckDevice(device); !allowed.ok()) return allowed;
  }
  return CheckAccess(asked);
}

void ToProto(const Terms& terms, v1::AppliedPolicy* applied) {
  applied->set_rule(terms.rule);
  applied->set_deny(terms.deny);
  v1::RuleLimits* limits = applied->mutable_limits();
  for (const LimitField& field : LimitFields()) {
    limits->GetReflection()->SetUInt64(
        limits, v1::RuleLimits::descriptor()->FindFieldByName(field.name), field.get(terms.limits));
  }
  ToProto(terms.ttl.min, applied->mutable_ttl()->mutable_min());
  if (terms.ttl.max) ToProto(*terms.ttl.max, applied->mutable_ttl()->mutable_max());
  if (terms.ttl.when_unasked) {
    ToProto(*terms.ttl.when_unasked, applied->mutable_ttl()->mutable_default_());
  }
  applied->mutable_devices()->Add(terms.devices.begin(), terms.devices.end());
  for (int flag = v1::AccessFlag_MIN + 1; flag <= v1::AccessFlag_MAX; ++flag) {
    const auto each = static_cast<v1::AccessFlag>(flag);
    if ((terms.access & fabric::Bit(each)) != 0) applied->add_access(each);
  }
  applied->set_unsealed(terms.unsealed);
  applied->set_named_domains(terms.named_domains);
}

}  // namespace mrd::policy
