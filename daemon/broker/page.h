// One page of a list over all sessions, by id.
#ifndef MRD_DAEMON_BROKER_PAGE_H_
#define MRD_DAEMON_BROKER_PAGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace mrd::broker {

// Sessions come in any order, and each may have as many entries as fit a page, or more: it keeps a
// few pages of them at most. View has an id.
template <typename View>
class PageOf {
 public:
  using Entries = std::vector<std::pair<uint64_t, View>>;  // With the id of the session.

  explicit PageOf(size_t most) : most_(most) {}

  // Whether it is to be added: entries with a greater id are on a later page.
  bool Wants(uint64_t id) const { return id < end_; }
  void Add(uint64_t session_id, View view) {
    entries_.emplace_back(session_id, std::move(view));
    if (entries_.size() > kPages * (most_ + 1)) KeepFirst();
  }
  // By id. `next`: the last one of them where there are more; else 0.
  Entries Take(uint64_t* next) {
    KeepFirst();
    std::sort(entries_.begin(), entries_.end(), ById);
    *next = 0;
    if (entries_.size() > most_) {
      entries_.pop_back();
      *next = entries_.back().second.id;
    }
    return std::move(entries_);
  }

 private:
  static constexpr size_t kPages = 4;

  static bool ById(const std::pair<uint64_t, View>& a, const std::pair<uint64_t, View>& b) {
    return a.second.id < b.second.id;
  }
  // One more than the page has, which tells that there are more.
  void KeepFirst() {
    if (entries_.size() <= most_ + 1) return;
    const auto last = entries_.begin() + most_;
    std::nth_element(entries_.begin(), last, entries_.end(), ById);
    end_ = last->second.id;
    entries_.erase(last + 1, entries_.end());
  }

  const size_t most_;
  Entries entries_;
  uint64_t end_ = UINT64_MAX;
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_PAGE_H_
