#include "daemon/policy_file.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "daemon/broker/policy/file.h"
#include "daemon/broker/policy/parse.h"
#include "spdlog/spdlog.h"

namespace mrd {
namespace {

std::string FileOf(const std::string& path) { return path.empty() ? policy::kDefaultFile : path; }

}  // namespace

absl::StatusOr<v1::Policy> ReadPolicy(const std::string& path) {
  const std::string file = FileOf(path);
  auto text = policy::ReadPolicyFile(file);
  if (path.empty() && absl::IsNotFound(text.status())) {
    spdlog::info("there is no policy {}: the built-in defaults hold for everybody", file);
    return v1::Policy();
  }
  if (!text.ok()) {
    spdlog::error("{}", std::string(text.status().message()));
    return text.status();
  }
  policy::Parsed parsed = policy::Parse(*text);
  for (const std::string& note : parsed.notes) spdlog::warn("policy {}: {}", file, note);
  if (parsed.ok()) return std::move(parsed.policy);
  std::vector<std::string> lines;
  for (const policy::Problem& problem : parsed.problems) {
    lines.push_back(policy::ToString(file, problem));
    spdlog::error("policy {}", lines.back());
  }
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

PolicyFile::PolicyFile(broker::Books& books, broker::Observer& observer, std::string path,
                       v1::Policy first, const broker::Limits& built_in,
                       const broker::Limits& ceiling)
    : books_(books),
      observer_(observer),
      path_(std::move(path)),
      built_in_(built_in),
      ceiling_(ceiling) {
  Apply(std::move(first));
}

absl::Status PolicyFile::Reload() {
  MutexLock lock(mutex_);
  auto policy = ReadPolicy(path_);
  if (!policy.ok()) {
    observer_.PolicyRead(false);
    spdlog::error("the policy is not taken: the one in force before stays, as it was");
    return policy.status();
  }
  Apply(*std::move(policy));
  return absl::OkStatus();
}

void PolicyFile::Apply(v1::Policy policy) {
  auto next = std::make_shared<const policy::Policy>(std::move(policy), built_in_, ceiling_);
  const std::string changes = books_.policy()->ChangesTo(*next);
  const size_t rules = next->rules();
  const size_t sessions = books_.SetPolicy(std::move(next));
  observer_.PolicyRead(true);
  // Where there is no file that has been said.
  if (rules == 0 && path_.empty() && sessions == 0) return;
  spdlog::info("policy in force: {} rules of {}; {}; {} sessions have other terms now", rules,
               FileOf(path_), changes, sessions);
}

}  // namespace mrd
