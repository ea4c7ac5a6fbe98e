// What is measured of registrations, on both sides; each is a benchmark of its name.
//
// Direct verbs are called right after an empty call of the daemon, which is not counted: as in a
// program that does other things too, and as the daemon does it. In a loop of nothing else their
// code and translations stay warm, which an emulated machine (no TLB survives a switch of
// processes) makes ten times as much of.
#ifndef MRD_TESTS_BENCH_REGISTRATION_H_
#define MRD_TESTS_BENCH_REGISTRATION_H_

#include <string>

#include "tests/bench/direct.h"
#include "tests/bench/mrd_side.h"

namespace mrd::bench {

inline constexpr uint64_t kSmall = 4 << 10;
inline constexpr uint64_t kLarge = 64 << 20;
inline constexpr int kMany = 256;

inline constexpr char kEmptyCall[] = "empty call";
inline constexpr char kMrdSmall[] = "mrd: 4 KiB, register + deregister";
inline constexpr char kDirectSmall[] = "direct: 4 KiB, register + deregister";
inline constexpr char kMrdMany[] = "mrd: 256 x 4 KiB in one call";
inline constexpr char kDirectMany[] = "direct: 256 x 4 KiB";
inline constexpr char kMrdLarge[] = "mrd: 64 MiB";
inline constexpr char kDirectLarge[] = "direct: 64 MiB";
inline constexpr char kMrdFirst[] = "mrd: 64 MiB, first use";
std::string DirectFirst(Populate populate);

// Registers them with Google Benchmark. `mrd` and `direct` outlive the runs.
void AddRegistrationBenchmarks(const MrdSide& mrd, Direct& direct);

}  // namespace mrd::bench

#endif  // MRD_TESTS_BENCH_REGISTRATION_H_
