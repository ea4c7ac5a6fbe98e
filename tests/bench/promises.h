// The promises of the design that this program measures, and whether they are kept.
#ifndef MRD_TESTS_BENCH_PROMISES_H_
#define MRD_TESTS_BENCH_PROMISES_H_

#include <string>
#include <vector>

#include "tests/bench/samples.h"

namespace mrd::bench {

// So many times the least of these samples' medians.
struct Term {
  double factor;
  std::vector<std::string> best_of;
};

struct Promise {
  std::string what;
  std::string measured;       // A sample.
  double share;               // Of it that is compared: 1/256 of a call with 256 ranges.
  std::vector<Term> allowed;  // The sum of these; none: `limit` is in seconds.
  double limit;
};

enum class Judgement { kMet, kMissed, kNotJudged };

struct Verdict {
  const Promise* promise;
  double measured = 0;              // Seconds.
  double allowed = 0;               // Seconds, before the limit; 0: an absolute limit.
  double value = 0;                 // What is held against the limit: a ratio, or seconds.
  std::vector<std::string> chosen;  // The samples that make up `allowed`, one a term.
  Judgement judgement = Judgement::kNotJudged;
  bool complete = false;  // All samples were there.
};

inline constexpr char kOwnRegister[] = "daemon's own time, Register 4 KiB";
inline constexpr char kOwnDeregister[] = "daemon's own time, Deregister 4 KiB";

const std::vector<Promise>& Promises();

// Ratios are judged only where `real`: where there are verbs to compare with. Absolute limits are
// judged where they were measured.
Verdict Judge(const Promise& promise, const Samples& samples, bool real);

}  // namespace mrd::bench

#endif  // MRD_TESTS_BENCH_PROMISES_H_
