// Numbers that many threads count up and one reads now and then. Counting takes no lock and waits
// for nothing: some nanoseconds, on the way of every call.
#ifndef MRD_DAEMON_STATS_H_
#define MRD_DAEMON_STATS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace mrd::stats {

class Counter {
 public:
  void Add(uint64_t count = 1) { value_.fetch_add(count, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// How long something took: 1, 2, 5 of each power of ten from a microsecond on, and a minute.
class Durations {
 public:
  static constexpr std::array<uint64_t, 25> kBoundsNs = [] {
    std::array<uint64_t, 25> bounds{};
    size_t i = 0;
    for (uint64_t decade = 1'000; i < 24; decade *= 10) {
      for (const uint64_t factor : {1, 2, 5}) bounds[i++] = decade * factor;
    }
    bounds[24] = 60'000'000'000;
    return bounds;
  }();

  struct Snapshot {
    std::array<uint64_t, kBoundsNs.size() + 1> counts;  // Of each bucket; the last: beyond all.
    uint64_t total_ns;
  };

  void Add(std::chrono::nanoseconds took) {
    const auto ns = static_cast<uint64_t>(took.count() < 0 ? 0 : took.count());
    counts_[BucketOf(ns)].fetch_add(1, std::memory_order_relaxed);
    total_ns_.fetch_add(ns, std::memory_order_relaxed);
  }

  // Buckets are read one after another while others count: their sum is what it says it is.
  Snapshot Read() const {
    Snapshot snapshot;
    for (size_t i = 0; i < counts_.size(); ++i) {
      snapshot.counts[i] = counts_[i].load(std::memory_order_relaxed);
    }
    snapshot.total_ns = total_ns_.load(std::memory_order_relaxed);
    return snapshot;
  }

 private:
  // The first whose bound is not below it: a bound belongs to its bucket ("le").
  static size_t BucketOf(uint64_t ns) {
    size_t low = 0;
    size_t high = kBoundsNs.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (kBoundsNs[middle] < ns) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  std::array<std::atomic<uint64_t>, kBoundsNs.size() + 1> counts_{};
  std::atomic<uint64_t> total_ns_{0};
};

}  // namespace mrd::stats

#endif  // MRD_DAEMON_STATS_H_
