#include "tests/bench/samples.h"

#include <algorithm>

#include "benchmark/benchmark.h"
#include "tests/bench/die.h"

namespace mrd::bench {
namespace {

class Collector : public benchmark::BenchmarkReporter {
 public:
  explicit Collector(Samples* samples) : samples_(samples) {}

  bool ReportContext(const Context&) override { return true; }

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const std::string& name = run.run_name.function_name;
      if (run.error_occurred) Die(name + ": " + run.error_message);
      samples_->Add(name, run.real_accumulated_time / static_cast<double>(run.iterations));
    }
  }

 private:
  Samples* const samples_;
};

}  // namespace

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void RunRounds(int rounds, const std::string& only, Samples* samples) {
  Samples uncounted;
  for (int round = -1; round < rounds; ++round) {
    Collector collector(round < 0 ? &uncounted : samples);
    benchmark::RunSpecifiedBenchmarks(&collector, only);
  }
  benchmark::ClearRegisteredBenchmarks();
}

}  // namespace mrd::bench
