// How long after SIGKILL the regions of a process are gone.
//
// The kernel's side: a process that holds regions of its own is killed; the kernel closes its
// device's descriptor, and with it ends each region, in do_exit(), before the parent is told. So
// the time from kill(2) to waitpid(2) is all of it.
// The daemon's side: a client that holds as many is killed; the time is from kill(2) until the
// daemon has no page pinned any more, by the kernel's own account (VmPin in /proc/PID/status),
// looked at every half millisecond: asking the daemon would take its processors from it. Its books
// must be empty too, at the first question after that. Without real verbs nothing is pinned, and
// the books are all there is to ask.
#ifndef MRD_TESTS_BENCH_DEATH_H_
#define MRD_TESTS_BENCH_DEATH_H_

#include <string>

#include "client/client.h"
#include "tests/bench/samples.h"

namespace mrd::bench {

inline constexpr int kHeld = 10000;  // Regions, each of a page of one buffer.
inline constexpr char kMrdDeath[] = "mrd: 10,000 regions of a killed client";
inline constexpr char kDirectDeath[] = "direct: 10,000 regions of a killed process";

struct Held {
  std::string device;
  std::string socket_dir;  // Of a daemon; empty: direct verbs.
};

// What the child does: registers, says so on standard output, and waits to be killed.
[[noreturn]] void Hold(const Held& held);

// Adds `rounds` samples of each side, in turns; of the daemon's alone where it has no `real` verbs.
// `admin` is an admin session, for the daemon's totals. REQUIRES: the daemon holds no region.
void MeasureDeaths(const Client& admin, const Held& held, bool real, int rounds, Samples* samples);

}  // namespace mrd::bench

#endif  // MRD_TESTS_BENCH_DEATH_H_
