#include "client/mrctl/top_model.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace mrctl {
namespace {

using mrd::v1::TopSession;

constexpr const char* kWords[] = {"bytes",  "regions",   "calls", "renewals",
                                  "lapses", "unclaimed", "age"};

// Greater ones first.
double Weight(const TopSession& each, TopOrder order) {
  const auto& session = each.session();
  switch (order) {
    case TopOrder::kBytes:
      return static_cast<double>(session.pinned_bytes());
    case TopOrder::kRegions:
      return static_cast<double>(session.regions());
    case TopOrder::kCalls:
      return each.calls_per_second();
    case TopOrder::kRenewals:
      return each.renewals_per_second();
    case TopOrder::kLapses:
      return static_cast<double>(session.lapses());
    case TopOrder::kUnclaimed:
      return static_cast<double>(session.unclaimed_buffers());
    case TopOrder::kAge:
      return 0;  // As they came: ids grow.
  }
  return 0;
}

}  // namespace

bool OrderOfKey(char key, TopOrder* order) {
  const char* const end = std::end(kOrderKeys) - 1;
  const char* const found = std::find(std::begin(kOrderKeys), end, key);
  if (found == end) return false;
  *order = static_cast<TopOrder>(found - std::begin(kOrderKeys));
  return true;
}

bool OrderOfWord(const std::string& word, TopOrder* order) {
  const auto found = std::find(std::begin(kWords), std::end(kWords), word);
  if (found == std::end(kWords)) return false;
  *order = static_cast<TopOrder>(found - std::begin(kWords));
  return true;
}

std::vector<std::string> OrderWords() { return {std::begin(kWords), std::end(kWords)}; }

void TopModel::Take(Clock::time_point now, mrd::v1::GetStatusResponse status,
                    std::vector<mrd::v1::Session> sessions) {
  const double seconds = first_ ? 0 : std::chrono::duration<double>(now - taken_).count();
  std::unordered_map<uint64_t, Counts> counts;
  sample_.Clear();
  sample_.set_seconds(seconds);
  *sample_.mutable_status() = std::move(status);
  calls_per_second_ = 0;
  for (auto& session : sessions) {
    const Counts have{session.calls(), session.renewals(), session.lapses()};
    const uint64_t id = session.session_id();
    counts[id] = have;
    TopSession* each = sample_.add_sessions();
    *each->mutable_session() = std::move(session);
    if (seconds <= 0) continue;
    const auto known = before_.find(id);
    // A new one's calls are all of the time between.
    const Counts had = known == before_.end() ? Counts{} : known->second;
    const auto rate = [seconds](uint64_t now_has, uint64_t before_had) {
      return now_has < before_had ? 0 : static_cast<double>(now_has - before_had) / seconds;
    };
    each->set_calls_per_second(rate(have.calls, had.calls));
    each->set_renewals_per_second(rate(have.renewals, had.renewals));
    calls_per_second_ += each->calls_per_second();
    if (have.lapses > had.lapses) new_lapses_ += have.lapses - had.lapses;
  }
  before_ = std::move(counts);
  taken_ = now;
  first_ = false;
}

void TopModel::Sort(TopOrder order, bool reverse) {
  auto* sessions = sample_.mutable_sessions();
  std::stable_sort(sessions->pointer_begin(), sessions->pointer_end(),
                   [order](const TopSession* a, const TopSession* b) {
                     const double left = Weight(*a, order);
                     const double right = Weight(*b, order);
                     if (left != right) return left > right;
                     return a->session().session_id() < b->session().session_id();
                   });
  if (reverse) std::reverse(sessions->pointer_begin(), sessions->pointer_end());
}

}  // namespace mrctl
