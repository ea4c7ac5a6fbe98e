// A walker as a process of its own, to be killed at any moment.
//
//   walk_client DIR SEED
//
// Reads "walk STEPS", "report" and "leave", a line each, and answers each with what the session
// then holds and what was done since the start, as WalkReport has it.
#include <iostream>
#include <sstream>

#include "tests/e2e/walk_report.h"
#include "tests/e2e/walker.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  mrd::e2e::Walker walker(argv[1], static_cast<unsigned>(std::stoul(argv[2])));
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string command;
    int steps = 0;
    words >> command >> steps;
    if (command == "walk") walker.Walk(steps);
    walker.Settle();
    if (command == "leave") walker.LeaveDomains();
    std::cout << mrd::e2e::ToLine({walker.held(), walker.walked()}) << std::endl;
  }
  _exit(0);  // Nothing is tidied up.
}
