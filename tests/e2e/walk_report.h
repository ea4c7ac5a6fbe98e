// What a walker tells the test, as a line.
#ifndef MRD_TESTS_E2E_WALK_REPORT_H_
#define MRD_TESTS_E2E_WALK_REPORT_H_

#include <sstream>
#include <string>

#include "tests/e2e/walker.h"

namespace mrd::e2e {

struct WalkReport {
  Held held;
  Walked walked;
};

// Calls `each` with every number in turn.
template <typename Report, typename Each>
void ForEachNumber(Report& report, Each each) {
  auto& [session, regions, bytes, leases, buffers, endpoints, domains, named] = report.held;
  auto& [steps, registered, lapsed, revoked, refused, quotas, faults, hang_ups] = report.walked;
  for (auto* number :
       {&session, &regions, &bytes, &leases, &buffers, &endpoints, &domains, &named, &steps,
        &registered, &lapsed, &revoked, &refused, &quotas, &faults, &hang_ups}) {
    each(*number);
  }
}

inline std::string ToLine(const WalkReport& report) {
  std::ostringstream line;
  ForEachNumber(report, [&line](uint64_t number) { line << number << " "; });
  return line.str();
}

// REQUIRES: it was made by ToLine.
inline WalkReport ReportOf(const std::string& line) {
  WalkReport report;
  std::istringstream words(line);
  ForEachNumber(report, [&words](uint64_t& number) { words >> number; });
  Require(!words.fail(), "a report: " + line);
  return report;
}

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_WALK_REPORT_H_
