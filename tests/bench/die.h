// What cannot be measured is no result: the program ends, saying why.
#ifndef MRD_TESTS_BENCH_DIE_H_
#define MRD_TESTS_BENCH_DIE_H_

#include <stdio.h>
#include <stdlib.h>

#include <string>

#include "absl/status/statusor.h"

namespace mrd::bench {

inline constexpr int kCannotMeasure = 2;

[[noreturn]] inline void Die(const std::string& why) {
  fprintf(stderr, "bench: %s\n", why.c_str());
  _Exit(kCannotMeasure);
}

inline void MustBe(const absl::Status& status, const char* what) {
  if (!status.ok()) Die(std::string(what) + ": " + std::string(status.message()));
}

template <typename T>
T Must(absl::StatusOr<T> value, const char* what) {
  MustBe(value.status(), what);
  return *std::move(value);
}

}  // namespace mrd::bench

#endif  // MRD_TESTS_BENCH_DIE_H_
