// A policy's text, to a policy that is known to be good. Pure: no file, no daemon.
#ifndef MRD_DAEMON_BROKER_POLICY_PARSE_H_
#define MRD_DAEMON_BROKER_POLICY_PARSE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "mrd/v1/policy.pb.h"

namespace mrd::policy {

inline constexpr size_t kMostFileBytes = 1 << 20;
inline constexpr int kMostRules = 256;
inline constexpr int kMostPatterns = 64;  // Of cgroups, and of devices, in one rule.
inline constexpr int kMostProblems = 50;  // Told of one file.

// Lines and columns count from 1; line 0: of the text as a whole.
struct Problem {
  int line = 0;
  int column = 0;
  std::string what;
};

struct Parsed {
  v1::Policy policy;
  std::vector<Problem> problems;   // None: the policy is good. In the order of the text.
  std::vector<std::string> notes;  // What is good and may surprise.

  bool ok() const { return problems.empty(); }
};

// Takes any bytes.
Parsed Parse(std::string_view text);

// "FILE:3:7: what", as compilers do.
std::string ToString(const std::string& file, const Problem& problem);

}  // namespace mrd::policy

#endif  // MRD_DAEMON_BROKER_POLICY_PARSE_H_
