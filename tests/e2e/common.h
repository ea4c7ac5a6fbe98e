// What all end-to-end tests share: how long, how many, and waiting for something to become true.
#ifndef MRD_TESTS_E2E_COMMON_H_
#define MRD_TESTS_E2E_COMMON_H_

#include <chrono>
#include <functional>
#include <string>

namespace mrd::e2e {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A bound that is promised: sanitized programs are many times slower.
inline constexpr milliseconds Promised(milliseconds bound) {
  return kSanitized ? bound * 10 : bound;
}

// So many of something that is done over and over.
inline constexpr int Scaled(int count) { return kSanitized ? (count + 9) / 10 : count; }

// For what happens soon in any case, and whose absence is a failure.
inline constexpr seconds kPatience{20};

// Asks again and again until it is true. False: not within this time.
bool WaitUntil(milliseconds within, const std::function<bool()>& holds);

// The test cannot go on: says why, with errno, and ends the process (and with it the daemons that
// it started).
void Require(bool holds, const std::string& what);

// All of a file that has no size (/proc). Empty where it cannot be read.
std::string ReadFile(const std::string& path);

}  // namespace mrd::e2e

#endif  // MRD_TESTS_E2E_COMMON_H_
