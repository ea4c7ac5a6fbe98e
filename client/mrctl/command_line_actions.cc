// The commands of mrctl that change something at the daemon.
#include "client/mrctl/command_line.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

// An admin's command.
void Does(CLI::App* command, CommandLine& line, std::function<int()> run) {
  command->callback([&line, run = std::move(run)] {
    line.global.admin = true;
    line.run = run;
  });
}

CLI::Option* TakesReason(CLI::App* command, std::string* reason) {
  return command->add_option("--reason", *reason, "For the clients and the log: at most 256 bytes")
      ->type_name("TEXT");
}

void AddRevoke(CLI::App& app, CommandLine& line) {
  CLI::App* revoke = app.add_subcommand("revoke", "End what clients hold (admin)");
  CLI::App* lease = revoke->add_subcommand("lease", "End leases: no device reaches their\nregions");
  lease->add_option("ID", line.id_texts, "Of mrctl leases; several may be given")
      ->required()
      ->type_name("")
      ->take_all()
      ->check(CLI::Validator(
          [&line](const std::string& text) {
            const auto id = ParseSessionId(text);
            if (!id.ok()) return std::string(id.status().message());
            line.revoke.ids.push_back(*id);
            return std::string();
          },
          ""));
  CLI::App* session = revoke->add_subcommand("session", "End a session with all that it holds");
  session->add_option("ID", line.session_text, "Of mrctl sessions")
      ->required()
      ->type_name("")
      ->check(Parsed(ParseSessionId, &line.session_id));
  for (CLI::App* command : {lease, session}) TakesReason(command, &line.revoke.reason);
  for (CLI::App* command : {revoke, lease, session}) command->fallthrough();
  revoke->require_subcommand(1);
  Does(lease, line, [&line] { return RunRevokeLeases(line.global, line.revoke); });
  Does(session, line, [&line] {
    line.revoke.ids = {line.session_id};
    return RunRevokeSession(line.global, line.revoke);
  });
}

void AddDrain(CLI::App& app, CommandLine& line) {
  CLI::App* drain = app.add_subcommand("drain",
                                       "Let nothing new begin; what stands goes on\nuntil its "
                                       "session ends (admin). Once more: with\n"
                                       "this reason and deadline instead");
  CLI::Option* const reason = TakesReason(drain, &line.drain.reason);
  CLI::Option* const deadline =
      drain
          ->add_option(
              "--deadline", line.deadline_text,
              "After it the sessions that are left are ended:\n10m, 2h. Default: they never are")
          ->type_name("DURATION")
          ->check(Parsed(ParseDuration, &line.drain.deadline));
  drain->add_flag("--undo", line.drain.undo, "Take it back")->excludes(reason)->excludes(deadline);
  Does(drain, line, [&line] { return RunDrain(line.global, line.drain); });
}

void AddGenerations(CLI::App& app, CommandLine& line) {
  CLI::App* generations = app.add_subcommand(
      "generations", "List what restarts of the daemon have left\nin use, and the store (admin)");
  CLI::App* leave = generations->add_subcommand(
      "leave", "Ask its clients to make their connections\nanew; ends nothing");
  leave->add_option("DEVICE", line.leave.device, "Of mrctl generations")->required()->type_name("");
  leave->add_option("GENERATION", line.generation_text, "Of mrctl generations")
      ->required()
      ->type_name("")
      ->check(Parsed(ParseSessionId, &line.leave.generation));
  TakesReason(leave, &line.leave.reason);
  leave->fallthrough();
  Does(leave, line, [&line] { return RunLeaveGeneration(line.global, line.leave); });
  // It is called after that of the command within it.
  generations->callback([&line, leave] {
    line.global.admin = true;
    if (!leave->parsed()) line.run = [&line] { return RunGenerations(line.global); };
  });
}

}  // namespace

void AddActions(CLI::App& app, CommandLine& line) {
  AddRevoke(app, line);
  AddDrain(app, line);
  AddGenerations(app, line);
  Does(app.add_subcommand("reload", "Have the daemon read its policy anew (admin)"), line,
       [&line] { return RunReload(line.global); });
}

}  // namespace mrctl
