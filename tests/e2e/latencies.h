// How long calls take, and what most of them take at most.
#ifndef MRD_TESTS_E2E_LATENCIES_H_
#define MRD_TESTS_E2E_LATENCIES_H_

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/e2e/common.h"

namespace mrd::e2e {

// Not thread-safe.
class Latencies {
 public:
  template <typename Call>
  void Time(Call call) {
    const auto began = Clock::now();
    call();
    all_.push_back(std::chrono::duration<double, std::micro>(Clock::now() - began).count());
  }

  size_t size() const { return all_.size(); }
  // Microseconds: 0.5, the median. REQUIRES: some calls were timed.
  double At(double share) const {
    Require(!all_.empty(), "calls that were timed");
    std::vector<double> sorted = all_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * sorted.size()))];
  }
  double p50() const { return At(0.50); }
  double p99() const { return At(0.99); }

 private:
  std::vector<double> all_;
};

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_LATENCIES_H_
