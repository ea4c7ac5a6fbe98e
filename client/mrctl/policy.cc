#include "client/mrctl/policy.h"

#include <cstdio>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "client/mrctl/table.h"
#include "client/mrctl/units.h"
#include "daemon/broker/policy/file.h"
#include "daemon/broker/policy/parse.h"
#include "daemon/broker/policy/policy.h"
#include "daemon/broker/policy/text.h"

namespace mrctl {
namespace {

using mrd::policy::Parsed;
using mrd::v1::AppliedPolicy;

std::string Time(const google::protobuf::Duration& duration) {
  char text[64];
  snprintf(text, sizeof text, "%lld.%09d", static_cast<long long>(duration.seconds()),
           duration.nanos());
  std::string seconds = text;
  seconds.erase(seconds.find_last_not_of('0') + 1);
  if (seconds.back() == '.') seconds.pop_back();
  return seconds + " s";
}

std::string Join(const google::protobuf::RepeatedPtrField<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string Ttl(const mrd::v1::RuleTtl& ttl) {
  const std::string most = ttl.has_max() ? Time(ttl.max()) : "as long as the session";
  std::string text = Time(ttl.min()) + " to " + most;
  if (ttl.has_default_()) text += "; " + Time(ttl.default_()) + " where a call wishes none";
  return text;
}

std::string Access(const AppliedPolicy& applied) {
  if (applied.access_size() == mrd::v1::AccessFlag_MAX) return "all";
  std::vector<mrd::v1::AccessFlag> flags;
  for (const int flag : applied.access()) flags.push_back(mrd::v1::AccessFlag(flag));
  return FormatAccess(flags);
}

// The problems, one a line, as editors and people know them from compilers.
void Tell(const std::string& file, const Parsed& parsed) {
  for (const auto& problem : parsed.problems) {
    fprintf(stderr, "%s\n", mrd::policy::ToString(file, problem).c_str());
  }
}

mrd::v1::PolicyCheck ToProto(const std::string& file, const Parsed& parsed) {
  mrd::v1::PolicyCheck check;
  check.set_file(mrd::policy::Printable(file));
  check.set_valid(parsed.ok());
  check.set_rules(parsed.policy.rules_size());
  for (const auto& problem : parsed.problems) {
    auto* told = check.add_problems();
    told->set_line(problem.line);
    told->set_column(problem.column);
    told->set_message(problem.what);
  }
  for (const std::string& note : parsed.notes) check.add_notes(note);
  return check;
}

}  // namespace

std::string PolicyText(const AppliedPolicy& applied, bool limits) {
  std::string text = applied.rule().empty() ? "no rule of the policy: the built-in defaults"
                                            : "rule \"" + applied.rule() + "\" of the policy";
  if (applied.deny()) return text + "; it may not attach, but for admins\n";
  text += "; limits count over " + applied.account() + "\n";
  Table table({"MAY HAVE", ""});
  if (limits) {
    const mrd::v1::RuleLimits& of = applied.limits();
    table.Add({"sessions", std::to_string(of.sessions())});
    table.Add({"connections", std::to_string(of.connections())});
    table.Add({"pinned bytes", FormatSize(of.pinned_bytes())});
    table.Add({"regions", std::to_string(of.regions())});
    table.Add({"endpoints", std::to_string(of.endpoints())});
    table.Add({"buffers", std::to_string(of.buffers())});
  }
  table.Add({"buffers of a session", std::to_string(applied.limits().buffers_per_session())});
  table.Add({"calls of a session", std::to_string(applied.limits().calls_per_session())});
  table.Add({"ttl of a lease", Ttl(applied.ttl())});
  table.Add({"devices", applied.devices().empty() ? "all" : Join(applied.devices())});
  table.Add({"access", Access(applied)});
  table.Add({"unsealed buffers", applied.unsealed() ? "yes" : "no"});
  table.Add({"named domains", applied.named_domains() ? "yes" : "no"});
  return text + "\n" + table.Text();
}

int RunPolicyCheck(const GlobalOptions& options, const std::string& file) {
  const auto text = mrd::policy::ReadPolicyFile(file);
  if (!text.ok()) return Fail(options, absl::FailedPreconditionError(text.status().message()));
  const Parsed parsed = mrd::policy::Parse(*text);
  int code = kOk;
  if (options.json) {
    code = PrintJson(options, ToProto(file, parsed));
  } else if (parsed.ok()) {
    code = Print(options, file + ": good, " + std::to_string(parsed.policy.rules_size()) +
                              (parsed.policy.rules_size() == 1 ? " rule\n" : " rules\n"));
    for (const std::string& note : parsed.notes) Note(options, note);
  } else {
    Tell(file, parsed);
  }
  return code != kOk || parsed.ok() ? code : kRefused;
}

// Rules that name what was not given: a client with that may be theirs.
std::string PassedOver(const mrd::v1::Policy& rules, const ExplainCommand& command) {
  std::vector<std::string> names;
  for (const mrd::v1::Rule& rule : rules.rules()) {
    const bool by_gid = rule.gid_size() + rule.gid_range_size() > 0 && command.gids.empty();
    const bool by_cgroup = rule.cgroup_size() > 0 && command.cgroup.empty();
    if (by_gid || by_cgroup) names.push_back(mrd::policy::Printable(rule.name()));
  }
  if (names.empty()) return "";
  return "not looked at, since no --gid or --cgroup was given: rules " +
         absl::StrJoin(names, ", ") + "\n";
}

int RunPolicyExplain(const GlobalOptions& options, const ExplainCommand& command) {
  const bool by_default = command.config.empty();
  const std::string file = by_default ? mrd::policy::kDefaultFile : command.config;
  auto text = mrd::policy::ReadPolicyFile(file);
  if (by_default && absl::IsNotFound(text.status())) {
    Note(options, "there is no policy " + file + ": the built-in defaults hold for everybody");
    text = "";
  }
  if (!text.ok()) return Fail(options, absl::FailedPreconditionError(text.status().message()));
  Parsed parsed = mrd::policy::Parse(*text);
  if (!parsed.ok()) {
    if (!options.json) Tell(file, parsed);
    return Fail(options, absl::FailedPreconditionError("the policy " + file +
                                                       " has errors: mrctl policy check " + file));
  }
  const mrd::v1::Policy rules = parsed.policy;
  const mrd::policy::Policy policy(std::move(parsed.policy), mrd::broker::Limits(),
                                   mrd::policy::Policy::Unbounded());
  mrd::policy::Subject subject{.uid = static_cast<uint32_t>(command.uid), .cgroup = command.cgroup};
  subject.gids.assign(command.gids.begin(), command.gids.end());
  const mrd::policy::Match match = policy.Find(subject);
  AppliedPolicy applied;
  mrd::policy::ToProto(*match.terms, &applied);
  applied.set_account(mrd::policy::Printable(match.account));
  if (options.json) return PrintJson(options, applied);
  std::string who = "uid " + std::to_string(command.uid);
  for (const uint64_t gid : command.gids) who += ", gid " + std::to_string(gid);
  if (!command.cgroup.empty()) who += ", cgroup " + mrd::policy::Printable(command.cgroup);
  std::string told = who + ": " + PolicyText(applied, /*limits=*/true);
  const std::string passed_over = PassedOver(rules, command);
  if (!passed_over.empty()) told += "\n" + passed_over;
  return Print(options, told);
}

}  // namespace mrctl
