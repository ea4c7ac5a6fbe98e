#include "tests/bench/promises.h"

#include <algorithm>

#include "tests/bench/death.h"
#include "tests/bench/registration.h"

namespace mrd::bench {
namespace {

std::vector<std::string> EachDirectFirst() {
  std::vector<std::string> names;
  for (const Populate populate : kEachPopulate) names.push_back(DirectFirst(populate));
  return names;
}

}  // namespace

const std::vector<Promise>& Promises() {
  static const auto* promises = new std::vector<Promise>{
      {"4 KiB of a mapped buffer, register + deregister",
       kMrdSmall,
       1,
       {{2, {kEmptyCall}}, {1, {kDirectSmall}}},
       1.15},
      {"the daemon's own time for Register of it", kOwnRegister, 1, {}, 5e-6},
      {"the daemon's own time for Deregister of it", kOwnDeregister, 1, {}, 5e-6},
      {"256 x 4 KiB in one call, per region",
       kMrdMany,
       1.0 / kMany,
       {{1.0 / kMany, {kEmptyCall}}, {1.0 / kMany, {kDirectMany}}},
       1.25},
      {"64 MiB of a mapped buffer", kMrdLarge, 1, {{1, {kEmptyCall}}, {1, {kDirectLarge}}}, 1.05},
      {"64 MiB, first use", kMrdFirst, 1, {{1, {kEmptyCall}}, {1, EachDirectFirst()}}, 1.05},
      {"10,000 regions of a killed client gone", kMrdDeath, 1, {{1, {kDirectDeath}}}, 1.2},
  };
  return *promises;
}

Verdict Judge(const Promise& promise, const Samples& samples, bool real) {
  Verdict verdict;
  verdict.promise = &promise;
  if (!samples.Has(promise.measured)) return verdict;
  verdict.measured = samples.MedianOf(promise.measured) * promise.share;
  for (const Term& term : promise.allowed) {
    if (!samples.Has(term.best_of.front())) return verdict;
    const auto less = [&](const auto& a, const auto& b) {
      return samples.MedianOf(a) < samples.MedianOf(b);
    };
    verdict.chosen.push_back(*std::min_element(term.best_of.begin(), term.best_of.end(), less));
    verdict.allowed += term.factor * samples.MedianOf(verdict.chosen.back());
  }
  const bool ratio = !promise.allowed.empty();
  verdict.complete = true;
  verdict.value = ratio ? verdict.measured / verdict.allowed : verdict.measured;
  if (!ratio || real) {
    verdict.judgement = verdict.value <= promise.limit ? Judgement::kMet : Judgement::kMissed;
  }
  return verdict;
}

}  // namespace mrd::bench
