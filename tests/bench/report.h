// Verdicts as a table for people and as JSON for programs.
#ifndef MRD_TESTS_BENCH_REPORT_H_
#define MRD_TESTS_BENCH_REPORT_H_

#include <string>
#include <vector>

#include "tests/bench/promises.h"
#include "tests/bench/samples.h"

namespace mrd::bench {

// Where the figures come from.
struct Setting {
  std::string label;  // What runs: "rxe0", "faked verbs".
  std::string device;
  std::string fabric;  // As the daemon says.
  bool real;           // Whether ratios are judged.
};

void PrintTable(const Setting& setting, const std::vector<Verdict>& verdicts,
                const Samples& samples);

// Medians and counts, in seconds. False: the file could not be written.
bool WriteJson(const std::string& path, const Setting& setting,
               const std::vector<Verdict>& verdicts, const Samples& samples);

}  // namespace mrd::bench

#endif  // MRD_TESTS_BENCH_REPORT_H_
