// Measurements by name, and the rounds in which Google Benchmark takes them.
#ifndef MRD_TESTS_BENCH_SAMPLES_H_
#define MRD_TESTS_BENCH_SAMPLES_H_

#include <map>
#include <string>
#include <vector>

namespace mrd::bench {

// In seconds. REQUIRES: not empty.
double Median(std::vector<double> values);

class Samples {
 public:
  void Add(const std::string& name, double seconds) { by_name_[name].push_back(seconds); }
  bool Has(const std::string& name) const { return by_name_.count(name) != 0; }
  // REQUIRES: Has(name).
  double MedianOf(const std::string& name) const { return Median(by_name_.at(name)); }
  const std::map<std::string, std::vector<double>>& all() const { return by_name_; }

 private:
  std::map<std::string, std::vector<double>> by_name_;
};

// Runs every registered benchmark once a round, so that both sides of a ratio see the same load of
// the machine, and adds one sample of each a round: its mean over its iterations. One round more
// goes before, uncounted, to warm up. Afterwards none is registered. `only` is a regular expression
// for names.
void RunRounds(int rounds, const std::string& only, Samples* samples);

}  // namespace mrd::bench

#endif  // MRD_TESTS_BENCH_SAMPLES_H_
