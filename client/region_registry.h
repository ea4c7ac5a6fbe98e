// The regions that a session has, so that they can be registered again.
#ifndef MRD_CLIENT_REGION_REGISTRY_H_
#define MRD_CLIENT_REGION_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "client/mutex.h"
#include "client/region_state.h"
#include "mrd/v1/attach.pb.h"

namespace mrd::internal {

// Thread-safe. A region that is pinned is not withdrawn: its state and its buffer stay.
class RegionRegistry final {
 public:
  RegionRegistry() = default;
  RegionRegistry(const RegionRegistry&) = delete;
  RegionRegistry& operator=(const RegionRegistry&) = delete;

  // Regions granted in this epoch (session_state.h). False: the session of that epoch was lost
  // since, and they with it; none was added. REQUIRES: withdrawn before they are destroyed.
  bool Add(std::span<RegionState> regions, uint64_t epoch);

  // Waits until it is not pinned; from then on its lease stays what it is. Again: nothing happens.
  void Withdraw(RegionState& region);
  // It was not deregistered.
  void Return(RegionState& region);

  // The session before was lost; the one of now begins with `epoch`. Pins and returns what is live.
  std::vector<RegionState*> BeginSession(uint64_t epoch);
  // Pins and returns those live ones that `wanted` is true of, unless the session of `epoch` has
  // been lost. `wanted` may not use the registry.
  std::vector<RegionState*> Pin(uint64_t epoch,
                                const std::function<bool(const RegionState&)>& wanted);
  // Whether the session of `epoch` is the one of now.
  bool InSession(uint64_t epoch) const;
  // Its keys in the session of `epoch`. False: that has been lost, and nothing was changed.
  bool SetKeys(RegionState& region, const v1::Lease& lease, uint64_t epoch);
  // Its lease has ended: it is not to be registered again. REQUIRES: pinned.
  void MarkEnded(RegionState& region);
  void Unpin(std::span<RegionState* const> regions);

  // Leases have ended by what the event tells.
  void OnEvent(const v1::AttachEvent& event);

 private:
  mutable Mutex mutex_;
  CondVar unpinned_;
  std::vector<RegionState*> regions_ ABSL_GUARDED_BY(mutex_);
  uint64_t session_ ABSL_GUARDED_BY(mutex_) = 0;  // The epoch with which it began.
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_REGION_REGISTRY_H_
