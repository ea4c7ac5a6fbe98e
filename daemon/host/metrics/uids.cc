#include "daemon/host/metrics/uids.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace mrd::host {

UidLabels::UidLabels(const std::map<uint32_t, broker::Amounts>& used, size_t most)
    : all_(used.size() <= most) {
  if (all_) return;
  std::vector<std::tuple<uint64_t, uint64_t, uint64_t, uint32_t>> order;
  for (const auto& [uid, has] : used) order.emplace_back(has.bytes, has.regions, has.sessions, uid);
  std::nth_element(order.begin(), order.begin() + most, order.end(), std::greater<>());
  for (size_t i = 0; i < most; ++i) shown_.insert(std::get<3>(order[i]));
}

std::string UidLabels::Of(uint32_t uid) const {
  return all_ || shown_.contains(uid) ? std::to_string(uid) : "other";
}

}  // namespace mrd::host
