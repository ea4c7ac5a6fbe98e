// What a Region is in the daemon, which changes when the daemon is restarted: its lease and keys.
#ifndef MRD_CLIENT_REGION_STATE_H_
#define MRD_CLIENT_REGION_STATE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "client/mutex.h"
#include "client/region_key.h"
#include "mrd/v1/device.pb.h"
#include "mrd/v1/registration.pb.h"

namespace mrd::internal {

class BufferState;

// How the regions of one call were asked for, so that they can be asked for again.
struct RegionSpec {
  std::vector<std::string> devices;
  bool all_devices = false;
  v1::Access::Preset preset = v1::Access::PRESET_UNSPECIFIED;
  std::vector<v1::AccessFlag> flags;
  std::string domain;
  std::chrono::nanoseconds ttl{0};
  bool release_after = false;
  bool newest_only = false;

  bool operator==(const RegionSpec&) const = default;
  // All but the ranges and the request id.
  void Fill(v1::RegisterRequest* request) const;
};

// Thread-safe. Lease and keys can be read without a lock: one pair of keys, of the newest
// generation on the first device, has a word of its own.
class RegionState final {
 public:
  // What the daemon granted.
  void Set(const v1::Lease& lease);
  // Only the keys.
  void SetKeys(const v1::Lease& lease);

  uint64_t lease_id() const { return lease_id_.load(std::memory_order_acquire); }
  std::chrono::nanoseconds ttl() const {
    return std::chrono::nanoseconds(ttl_.load(std::memory_order_acquire));
  }
  uint32_t lkey() const { return static_cast<uint32_t>(first_.load(std::memory_order_acquire)); }
  uint32_t rkey() const {
    return static_cast<uint32_t>(first_.load(std::memory_order_acquire) >> 32);
  }
  std::vector<RegionKey> keys() const;

  // What was asked for; set once, before other threads see this.
  const RegionSpec* spec = nullptr;
  BufferState* buffer = nullptr;  // The Region owns it.
  uint64_t offset = 0;            // In the object behind the descriptor.
  uint64_t length = 0;
  uint64_t addr = 0;

 private:
  friend class RegionRegistry;

  std::atomic<uint64_t> lease_id_ = 0;
  std::atomic<int64_t> ttl_ = 0;
  std::atomic<uint64_t> first_ = 0;  // lkey, and rkey above it.
  mutable Mutex mutex_;
  // Inline for the usual single device.
  absl::InlinedVector<RegionKey, 1> keys_ ABSL_GUARDED_BY(mutex_);

  // The registry's, under its lock.
  static constexpr size_t kNowhere = SIZE_MAX;
  size_t index_ = kNowhere;
  int pins_ = 0;
  uint64_t session_ = 0;  // In which it was withdrawn.
  bool ended_ = false;
};

// The regions of one call: one block of memory for all of them.
struct RegionBatch {
  explicit RegionBatch(size_t count) : states(std::make_unique<RegionState[]>(count)) {}

  RegionSpec spec;
  const std::unique_ptr<RegionState[]> states;
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_REGION_STATE_H_
