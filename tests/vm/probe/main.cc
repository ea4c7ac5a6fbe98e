// client_probe: a client of mrd that a script speaks to. It takes commands from standard input, one
// a line, and answers each with one line: "ok key=value ...", or "error reason=... ...", which is
// what mrd said. Its end, however it comes, is the client's. `client_probe --help` lists the words.
#include <stdio.h>
#include <string.h>

#include <chrono>
#include <iostream>
#include <string>

#include "tests/vm/probe/calibrate.h"
#include "tests/vm/probe/commands.h"
#include "tests/vm/probe/storm.h"
#include "tests/vm/probe/walk.h"
#include "tests/vm/probe/words.h"

namespace {

int Usage(FILE* out) {
  fprintf(out,
          "client_probe                                      commands from standard input\n"
          "client_probe storm CLIENTS SEED REGIONS DEVICE    clients that are killed\n"
          "client_probe walk DAEMON_PID CLIENTS OPERATIONS SEED SECOND_MS DEVICE,... COMMAND...\n"
          "    a random walk by clients that COMMAND starts; as an admin\n"
          "client_probe calibrate                            how fast is this machine\n"
          "\n"
          "Commands:\n%s",
          probe::kCommands);
  return out == stdout ? 0 : 2;
}

int Converse() {
  probe::ProbeClient client;
  for (std::string line; std::getline(std::cin, line);) {
    const probe::Words words = probe::Split(line);
    if (words.empty()) continue;
    const probe::Answer answer = probe::RunCommand(client, words);
    if (probe::IsMisspoken(answer.status())) {
      fprintf(stderr, "client_probe: %s: %s\n", line.c_str(),
              std::string(answer.status().message()).c_str());
      return 2;
    }
    puts(answer.ok() ? ("ok " + *answer).c_str() : probe::FormatError(answer.status()).c_str());
    fflush(stdout);
  }
  return 0;
}

int Storm(char** words) {
  const auto clients = probe::ParseNumber(words[0]);
  const auto seed = probe::ParseNumber(words[1]);
  const auto regions = probe::ParseNumber(words[2]);
  if (!clients.ok() || !seed.ok() || !regions.ok()) return Usage(stderr);
  return probe::RunStorm(
      {.clients = *clients, .seed = *seed, .regions = *regions, .device = words[3]});
}

int Walk(int count, char** words) {
  const auto daemon = probe::ParseNumber(words[0]);
  const auto clients = probe::ParseNumber(words[1]);
  const auto operations = probe::ParseNumber(words[2]);
  const auto seed = probe::ParseNumber(words[3]);
  const auto second = probe::ParseNumber(words[4]);
  if (!daemon.ok() || !clients.ok() || !operations.ok() || !seed.ok() || !second.ok() ||
      *clients == 0) {
    return Usage(stderr);
  }
  return probe::RunWalk({.daemon = static_cast<pid_t>(*daemon),
                         .clients = *clients,
                         .operations = *operations,
                         .seed = *seed,
                         .second = std::chrono::milliseconds(*second),
                         .devices = probe::Split(words[5], ','),
                         .client = {words + 6, words + count}});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 1) return Converse();
  if (argc == 6 && strcmp(argv[1], "storm") == 0) return Storm(argv + 2);
  if (argc >= 9 && strcmp(argv[1], "walk") == 0) return Walk(argc - 2, argv + 2);
  if (argc == 2 && strcmp(argv[1], "calibrate") == 0) {
    const probe::Calibration calibration = probe::Calibrate();
    printf("best_us=%ld mean_us=%ld\n", static_cast<long>(calibration.best.count()),
           static_cast<long>(calibration.mean.count()));
    return 0;
  }
  return Usage(argc == 2 && strcmp(argv[1], "--help") == 0 ? stdout : stderr);
}
