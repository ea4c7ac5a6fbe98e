// mrctl policy.
#include "client/mrctl/command_line.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

absl::StatusOr<uint64_t> ParseId(std::string_view text) { return ParseNumber(text, 0, UINT32_MAX); }

// A cgroup as /proc/PID/cgroup has it, after "0::".
std::string CheckCgroup(const std::string& text) {
  return text.empty() || text[0] != '/' ? mrd::cli::Expected("a path such as /user.slice", text)
                                        : "";
}

}  // namespace

void AddPolicy(CLI::App& app, CommandLine& line) {
  CLI::App* policy = app.add_subcommand("policy", "Look at a policy file, without a daemon");
  CLI::App* check =
      policy->add_subcommand("check", "Find what is wrong with one, by line and\ncolumn");
  check->add_option("FILE", line.policy_file, "Such as /etc/mrd/mrd.textproto")
      ->required()
      ->type_name("")
      ->check(mrd::cli::File());
  CLI::App* explain =
      policy->add_subcommand("explain", "Which rule and which limits apply to a client");
  explain->add_option("--uid", line.uid_text, "Its user")
      ->required()
      ->type_name("UID")
      ->check(Parsed(ParseId, &line.explain.uid));
  explain->add_option("--gid", line.gid_texts, "One of its groups; may be given again")
      ->type_name("GID")
      ->take_all()
      ->allow_extra_args(false)
      ->check(CLI::Validator(
          [&line](const std::string& text) {
            const auto gid = ParseId(text);
            if (!gid.ok()) return std::string(gid.status().message());
            line.explain.gids.push_back(*gid);
            return std::string();
          },
          ""));
  explain->add_option("--cgroup", line.explain.cgroup, "Its cgroup (v2), as in /proc/PID/cgroup")
      ->type_name("PATH")
      ->check(CLI::Validator(CheckCgroup, ""));
  explain
      ->add_option("--config", line.explain.config,
                   "The policy. Default: /etc/mrd/mrd.textproto,\nwhich may be missing")
      ->type_name("FILE")
      ->check(mrd::cli::File());
  for (CLI::App* command : {policy, check, explain}) command->fallthrough();
  policy->require_subcommand(1);
  check->callback(
      [&line] { line.run = [&line] { return RunPolicyCheck(line.global, line.policy_file); }; });
  explain->callback(
      [&line] { line.run = [&line] { return RunPolicyExplain(line.global, line.explain); }; });
}

}  // namespace mrctl
