// The commands of mrctl that look.
#include "client/mrctl/command_line.h"
#include "client/mrctl/doctor.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

// A command of this name that does `run`, as an admin where it says so.
CLI::App* Add(CLI::App& app, CommandLine& line, const std::string& name, const std::string& about,
              std::function<int()> run, bool admin = false) {
  CLI::App* const command = app.add_subcommand(name, about);
  command->callback([&line, run = std::move(run), admin] {
    if (admin) line.global.admin = true;
    line.run = run;
  });
  return command;
}

void TakesSession(CLI::App* command, CommandLine& line) {
  command->add_option("--session", line.session_text, "Only of this one")
      ->type_name("ID")
      ->check(Parsed(ParseSessionId, &line.session_id));
}

absl::StatusOr<std::chrono::nanoseconds> ParseInterval(std::string_view text) {
  auto interval = ParseDuration(text);
  if (interval.ok() && *interval < std::chrono::milliseconds(100)) {
    return absl::InvalidArgumentError(mrd::cli::Expected("at least 100ms", std::string(text)));
  }
  return interval;
}

absl::StatusOr<TopOrder> ParseOrder(std::string_view text) {
  TopOrder order;
  if (OrderOfWord(std::string(text), &order)) return order;
  std::string words;
  for (const std::string& word : OrderWords()) words += (words.empty() ? "" : ", ") + word;
  return absl::InvalidArgumentError(mrd::cli::Expected("one of " + words, std::string(text)));
}

void AddTop(CLI::App& app, CommandLine& line) {
  CLI::App* top = Add(
      app, line, "top", "Keep looking at the sessions (admin)",
      [&line] { return RunTop(line.global, line.top); }, true);
  top->add_option("--interval", line.interval_text, "Between two looks. Default: 1s")
      ->type_name("DURATION")
      ->check(Parsed(ParseInterval, &line.top.interval));
  top->add_option("--sort", line.sort_text,
                  "bytes, regions, calls, renewals, lapses,\nunclaimed or age. Default: bytes")
      ->type_name("WHAT")
      ->check(Parsed(ParseOrder, &line.top.order));
  top->add_flag(
      "--once", line.top.once,
      "Print one look, its rates over one interval;\nwith --json alone: one a line, for ever");
}

}  // namespace

absl::StatusOr<uint64_t> ParseSessionId(std::string_view text) {
  return ParseNumber(text, 1, UINT64_MAX);
}

void AddViews(CLI::App& app, CommandLine& line) {
  Add(app, line, "doctor", "Find what stands in the way, and the remedy",
      [&line] { return RunDoctor(line.global); });
  Add(app, line, "devices", "List the RDMA devices of the daemon",
      [&line] { return RunDevices(line.global); });
  Add(app, line, "status", "Show the daemon and your limits;\n--admin: all it holds",
      [&line] { return RunStatus(line.global); });
  AddTop(app, line);
  Add(
      app, line, "sessions", "List attached processes (admin)",
      [&line] { return RunSessions(line.global, line.wide); }, true)
      ->add_flag("--wide", line.wide, "All columns, in lines as long as they are");
  CLI::App* leases = Add(
      app, line, "leases", "List the regions of all sessions (admin)",
      [&line] { return RunLeases(line.global, line.session_id, line.wide); }, true);
  TakesSession(leases, line);
  leases->add_flag("--wide", line.wide, "All columns, in lines as long as they are");
  TakesSession(Add(
                   app, line, "endpoints", "List the endpoints of all sessions (admin)",
                   [&line] { return RunEndpoints(line.global, line.session_id); }, true),
               line);
  Add(
      app, line, "domains", "List the named domains (admin)",
      [&line] { return RunDomains(line.global); }, true);
  Add(
      app, line, "metrics", "Print the daemon's metrics, as Prometheus\nreads them (admin)",
      [&line] { return RunMetrics(line.global); }, true);
  Add(app, line, "version", "Print the version", [&line] { return RunVersion(line.global); });
}

}  // namespace mrctl
