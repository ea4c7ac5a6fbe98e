// mrctl: looks at mrd and tries it out. This file knows the command line; each command has its own.
#include <fcntl.h>
#include <unistd.h>

#include <sstream>
#include <string>
#include <vector>

#include "client/mrctl/command.h"
#include "client/mrctl/policy.h"
#include "client/mrctl/register.h"
#include "client/mrctl/units.h"
#include "daemon/usage.h"
#include "mrd/v1/version.h"

namespace {

constexpr char kFooter[] =
    "The daemon's sockets are looked for in --socket-dir, else $MRD_SOCKET_DIR,\n"
    "else /run/mrd.\n"
    "\n"
    "Exit status: 0 done; 1 refused, by the daemon or the kernel, or a policy has\n"
    "errors, or the output could not be written; 2 wrong usage; 3 the daemon cannot\n"
    "be reached (it does not run or not answer, or its socket is not for this user),\n"
    "or went away.";

absl::StatusOr<mrd::Pages> ParsePages(std::string_view text) {
  if (text == "4k" || text == "4K") return mrd::Pages::kBase4K;
  if (text == "thp") return mrd::Pages::kTransparentHuge;
  if (text == "2m" || text == "2M") return mrd::Pages::kHuge2M;
  return absl::InvalidArgumentError(mrd::cli::Expected("4k, thp or 2m", std::string(text)));
}

absl::StatusOr<uint64_t> ParseCount(std::string_view text) {
  return mrctl::ParseNumber(text, 1, 1'000'000);
}

absl::StatusOr<uint64_t> ParseSessionId(std::string_view text) {
  return mrctl::ParseNumber(text, 1, UINT64_MAX);
}

absl::StatusOr<uint64_t> ParseId(std::string_view text) {
  return mrctl::ParseNumber(text, 0, UINT32_MAX);
}

// A CLI11 check by one of the parsers, which keeps what it parsed.
template <typename Value, typename Kept>
CLI::Validator Parsed(absl::StatusOr<Value> (*parse)(std::string_view), Kept* value) {
  return CLI::Validator(
      [parse, value](const std::string& text) {
        auto parsed = parse(text);
        if (!parsed.ok()) return std::string(parsed.status().message());
        *value = *parsed;
        return std::string();
      },
      "");
}

// What the parsers write to, with the lifetime of the program's one run.
struct CommandLine {
  mrctl::GlobalOptions global;
  mrctl::RegisterCommand reg;
  uint64_t session_id = 0;
  mrctl::ExplainCommand explain;
  std::string policy_file;
  // CLI11's own conversions have texts for programmers: all values come as they were written.
  std::string size_text, access_text, pages_text, count_text, listen_text, for_text, session_text,
      uid_text;
  std::vector<std::string> gid_texts;
};

// A cgroup as /proc/PID/cgroup has it, after "0::".
std::string CheckCgroup(const std::string& text) {
  return text.empty() || text[0] != '/' ? mrd::cli::Expected("a path such as /user.slice", text)
                                        : "";
}

struct PolicyCommands {
  CLI::App* check;
  CLI::App* explain;
};

PolicyCommands AddPolicy(CLI::App& app, CommandLine& line) {
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
  return {check, explain};
}

void AddRegister(CLI::App& app, CommandLine& line) {
  CLI::App* command =
      app.add_subcommand("register", "Register memory, print its keys,\nhold it until Ctrl-C");
  line.reg.access.set_preset(mrd::v1::Access::REG_WRITE);
  command->add_option("--size", line.size_text, "Of each buffer: bytes, or 4K, 64M, 1G")
      ->required()
      ->type_name("SIZE")
      ->check(Parsed(mrctl::ParseSize, &line.reg.size));
  command
      ->add_option("--access", line.access_text,
                   "msgs, read, write (as rdma_reg_msgs(3) and so on),\n"
                   "or flags of ibv_reg_mr(3): local_write,\n"
                   "remote_read, remote_write, remote_atomic,\n"
                   "relaxed_ordering, on_demand, hugetlb; several\n"
                   "joined with ','. Default: write")
      ->type_name("ACCESS")
      ->check(Parsed(mrctl::ParseAccess, &line.reg.access));
  CLI::Option* device =
      command
          ->add_option("--device", line.reg.devices,
                       "Where; may be given again.\nDefault: the first active device")
          ->type_name("NAME")
          ->take_all()
          ->allow_extra_args(false);
  command->add_flag("--all-devices", line.reg.all_devices, "On every device")->excludes(device);
  command
      ->add_option("--pages", line.pages_text,
                   "4k, thp (transparent huge pages) or 2m.\nDefault: 4k")
      ->type_name("PAGES")
      ->check(Parsed(ParsePages, &line.reg.pages));
  command->add_option("--count", line.count_text, "How many buffers, in one call. Default: 1")
      ->type_name("N")
      ->check(Parsed(ParseCount, &line.reg.count));
  command
      ->add_option("--listen", line.listen_text,
                   "Accept peers at this address of a device, and\n"
                   "tell each (private data) address, rkey and length\n"
                   "of up to 12 regions: 64, 32 and 32 bits,\n"
                   "big-endian. Port 0: the daemon chooses")
      ->type_name("ADDR:PORT")
      ->check(Parsed(mrctl::ParseHostPort, &line.reg.listen));
  command->add_option("--for", line.for_text, "Hold for so long, then deregister and end")
      ->type_name("SECONDS")
      ->check(Parsed(mrctl::ParseSeconds, &line.reg.seconds));
}

int Run(int argc, char** argv) {
  CommandLine line;
  CLI::App app("mrctl " + std::string(mrd::kVersion) +
               ": looks at mrd, the memory-region daemon, and tries it out.");
  mrd::cli::Prepare(app, "mrctl");
  // An option given again replaces the first, as a script's users expect; CLI11 would refuse it.
  app.option_defaults()->take_last();
  app.footer(kFooter);
  app.require_subcommand(1);
  app.fallthrough();  // Global options may stand after the command.
  app.add_option("--socket-dir", line.global.socket_dir, "The directory of the daemon's sockets")
      ->type_name("DIR")
      ->check(mrd::cli::Directory());
  app.add_flag("--json", line.global.json,
               "One JSON document on stdout, fields as in the API;\n"
               "errors and notes on stderr: one JSON object a line");
  app.add_flag("--admin", line.global.admin,
               "Attach as an admin, over DIR-admin.\n"
               "Implied by sessions, leases and metrics");
  app.set_version_flag("--version", "mrctl " + std::string(mrd::kVersion), "Print the version");
  CLI::App* devices = app.add_subcommand("devices", "List the RDMA devices of the daemon");
  CLI::App* status =
      app.add_subcommand("status", "Show the daemon and your limits;\n--admin: all it holds");
  CLI::App* sessions = app.add_subcommand("sessions", "List attached processes (admin)");
  CLI::App* leases = app.add_subcommand("leases", "List the regions of all sessions (admin)");
  leases->add_option("--session", line.session_text, "Only of this one")
      ->type_name("ID")
      ->check(Parsed(ParseSessionId, &line.session_id));
  CLI::App* metrics = app.add_subcommand(
      "metrics", "Print the daemon's metrics, as Prometheus\nreads them (admin)");
  AddRegister(app, line);
  const PolicyCommands policy = AddPolicy(app, line);
  CLI::App* version = app.add_subcommand("version", "Print the version");

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    std::ostringstream text;
    app.exit(help_or_version, text);
    return mrctl::Print(line.global, text.str());
  } catch (const CLI::ParseError& error) {
    line.global.json = app.count("--json") > 0;
    return mrctl::Fail(line.global, absl::InvalidArgumentError(mrd::cli::UsageError(app, error)));
  }
  if (sessions->parsed() || leases->parsed() || metrics->parsed()) line.global.admin = true;
  if (devices->parsed()) return mrctl::RunDevices(line.global);
  if (status->parsed()) return mrctl::RunStatus(line.global);
  if (sessions->parsed()) return mrctl::RunSessions(line.global);
  if (leases->parsed()) return mrctl::RunLeases(line.global, line.session_id);
  if (metrics->parsed()) return mrctl::RunMetrics(line.global);
  if (version->parsed()) return mrctl::RunVersion(line.global);
  if (policy.check->parsed()) return mrctl::RunPolicyCheck(line.global, line.policy_file);
  if (policy.explain->parsed()) return mrctl::RunPolicyExplain(line.global, line.explain);
  return mrctl::RunRegister(line.global, line.reg);
}

}  // namespace

int main(int argc, char** argv) {
  // Started with closed ones: a socket would get the number of standard output, and its text.
  int fd;
  do {
    fd = open("/dev/null", O_RDONLY);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
  return Run(argc, argv);
}
