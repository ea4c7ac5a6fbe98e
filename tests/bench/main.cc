// tests/bench: measures the promises of the design that concern registration and death clean-up,
// on one device, both sides of each ratio in one run. See --help.
#include <stdio.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "benchmark/benchmark.h"
#include "daemon/fabric/verbs/api_real.h"
#include "tests/bench/death.h"
#include "tests/bench/die.h"
#include "tests/bench/direct.h"
#include "tests/bench/mrd_side.h"
#include "tests/bench/own_daemon.h"
#include "tests/bench/promises.h"
#include "tests/bench/registration.h"
#include "tests/bench/report.h"
#include "tests/fake/fake_verbs.h"

namespace mrd::bench {
namespace {

struct Flags {
  std::string socket_dir;
  std::optional<OwnFabric> daemon;
  std::string device;
  std::string label;
  std::string json;
  std::string only = ".";
  int rounds = 31;
  int deaths = 7;
  int own_calls = 20000;
  bool report_only = false;
  bool hold = false;
};

void ParseFlags(int argc, char** argv, Flags* flags) {
  CLI::App app{
      "Measures registration and death clean-up against a daemon, and against verbs called\n"
      "directly, in turns. Ratios are of medians over the rounds.",
      "bench"};
  const std::map<std::string, OwnFabric> fabrics = {
      {"soft", OwnFabric::kSoft}, {"fake", OwnFabric::kFake}, {"verbs", OwnFabric::kVerbs}};
  auto* dir = app.add_option("--socket-dir", flags->socket_dir, "That of a running daemon");
  app.add_option("--daemon", flags->daemon,
                 "Start one, of this program's own code, on this fabric (fake: faked verbs); the\n"
                 "daemon's own time is measured only so")
      ->type_name("soft|fake|verbs")
      ->transform(CLI::CheckedTransformer(fabrics).description(""))
      ->excludes(dir);
  app.add_option("--device", flags->device, "Name of the device")->required();
  app.add_option("--label", flags->label, "Heading of the table; default: the device");
  app.add_option("--json", flags->json, "Write the figures here")->type_name("FILE");
  app.add_option("--rounds", flags->rounds, "Of registrations; 0: none")->capture_default_str();
  app.add_option("--only", flags->only, "Registrations of these names only, to profile one thing")
      ->type_name("REGEX");
  app.add_option("--deaths", flags->deaths, "Clients to kill; 0: none")->capture_default_str();
  app.add_option("--own-calls", flags->own_calls, "Calls for the daemon's own time")
      ->capture_default_str();
  app.add_flag("--report-only", flags->report_only, "Exit with 0 whatever the verdicts");
  app.add_flag("--hold", flags->hold)->group("");  // The program's own children.
  app.footer("Exit status: 0 no judged promise is missed; 1 one is; 2 it could not be measured.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit(app.exit(error) == 0 ? 0 : kCannotMeasure);
  }
}

// Real verbs where the daemon has them; else fakes, which cost nothing: then a ratio says what the
// daemon adds to nothing.
std::unique_ptr<fabric::verbs::Api> DirectApi(bool real) {
  if (real) return fabric::verbs::MakeRealApi();
  return std::make_unique<fake::FakeVerbs>();
}

void MeasureOwnTime(const MrdSide& mrd, CallTimes& times, int calls, Samples* samples) {
  const Buffer buffer = mrd.MakeBuffer(kSmall);
  for (int call = -100; call < calls; ++call) {
    if (call == 0) times.Clear();  // The first ones warm up.
    Region region = mrd.Register(buffer);
    mrd.Deregister(std::span(&region, 1));
  }
  for (const double took : times.Of("RegisterRequest")) samples->Add(kOwnRegister, took);
  for (const double took : times.Of("DeregisterRequest")) samples->Add(kOwnDeregister, took);
}

void Measure(const Flags& flags, const std::string& socket_dir, CallTimes* times, Setting* setting,
             Samples* samples) {
  const Client admin = AttachWhenUp({.socket_dir = socket_dir, .admin = true, .name = "bench"});
  setting->fabric = admin.welcome().fabric();
  setting->real = setting->fabric == "verbs" && flags.daemon != OwnFabric::kFake;
  {
    const MrdSide mrd(socket_dir, flags.device);
    if (flags.rounds > 0) {
      Direct direct(DirectApi(setting->real), setting->real ? flags.device : "fake0");
      AddRegistrationBenchmarks(mrd, direct);
      RunRounds(flags.rounds, flags.only, samples);
    }
    if (times != nullptr) MeasureOwnTime(mrd, *times, flags.own_calls, samples);
  }
  MeasureDeaths(admin, {flags.device, socket_dir}, setting->real, flags.deaths, samples);
}

int Main(int argc, char** argv) {
  Flags flags;
  ParseFlags(argc, argv, &flags);
  if (flags.hold) Hold({flags.device, flags.socket_dir});
#ifndef __OPTIMIZE__
  Die("built without optimization: build with -c opt");
#endif
  Setting setting{flags.label.empty() ? flags.device : flags.label, flags.device, "", false};
  Samples samples;
  {
    std::optional<OwnDaemon> own;  // Before anything starts a thread.
    if (flags.daemon) own.emplace(*flags.daemon);
    benchmark::Initialize(&argc, argv);
    Measure(flags, own ? own->socket_dir() : flags.socket_dir, own ? &own->times() : nullptr,
            &setting, &samples);
  }
  std::vector<Verdict> verdicts;
  bool missed = false;
  for (const Promise& promise : Promises()) {
    const Verdict verdict = Judge(promise, samples, setting.real);
    if (!verdict.measured) continue;
    missed |= verdict.judgement == Judgement::kMissed;
    verdicts.push_back(verdict);
  }
  PrintTable(setting, verdicts, samples);
  if (!flags.json.empty() && !WriteJson(flags.json, setting, verdicts, samples)) {
    Die("cannot write " + flags.json);
  }
  return missed && !flags.report_only ? 1 : 0;
}

}  // namespace
}  // namespace mrd::bench

int main(int argc, char** argv) { return mrd::bench::Main(argc, argv); }
