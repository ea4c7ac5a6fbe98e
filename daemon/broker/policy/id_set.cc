#include "daemon/broker/policy/id_set.h"

#include <algorithm>

namespace mrd::policy {

void IdSet::AddRange(uint32_t first, uint32_t last) {
  if (first > kOverflowId || last < kOverflowId) return AddSpan(first, last);
  if (first < kOverflowId) AddSpan(first, kOverflowId - 1);
  if (last > kOverflowId) AddSpan(kOverflowId + 1, last);
}

void IdSet::Seal() {
  std::sort(spans_.begin(), spans_.end());
  std::vector<std::pair<uint32_t, uint32_t>> joined;
  for (const auto& span : spans_) {
    if (!joined.empty() && span.first <= uint64_t{joined.back().second} + 1) {
      joined.back().second = std::max(joined.back().second, span.second);
    } else {
      joined.push_back(span);
    }
  }
  spans_ = std::move(joined);
}

bool IdSet::Contains(uint32_t id) const {
  const auto after = std::upper_bound(
      spans_.begin(), spans_.end(), id,
      [](uint32_t value, const std::pair<uint32_t, uint32_t>& span) { return value < span.first; });
  return after != spans_.begin() && id <= (after - 1)->second;
}

bool IdSet::Covers(const IdSet& other) const {
  return std::all_of(other.spans_.begin(), other.spans_.end(), [this](const auto& theirs) {
    // Ours are apart from one another: only the last one that begins in time can reach so far.
    const auto after =
        std::upper_bound(spans_.begin(), spans_.end(), theirs.first,
                         [](uint32_t value, const auto& span) { return value < span.first; });
    return after != spans_.begin() && theirs.second <= (after - 1)->second;
  });
}

}  // namespace mrd::policy
