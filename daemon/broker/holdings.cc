#include "daemon/broker/holdings.h"

#include <utility>
#include <vector>

namespace mrd::broker {
namespace {

constexpr size_t kLeasesAtOnce = 4096;

// By device: few, and the same one from lease to lease.
class OfSession {
 public:
  void Add(const Lease& lease) {
    const size_t devices = lease.view.keys.size();
    for (const KeyView& key : lease.view.keys) {
      Holding& holding = Of(key.device);
      ++holding.regions;
      holding.bytes += lease.bytes / devices;
    }
  }

  const std::vector<std::pair<DeviceRef, Holding>>& all() const { return held_; }

 private:
  Holding& Of(const DeviceRef& device) {
    for (auto& [known, holding] : held_) {
      if (known == device) return holding;
    }
    return held_.emplace_back(device, Holding()).second;
  }

  std::vector<std::pair<DeviceRef, Holding>> held_;
};

}  // namespace

std::map<HoldingKey, Holding> Holdings(Broker& broker) {
  std::map<HoldingKey, Holding> all;
  for (const SessionRef& session : broker.All()) {
    OfSession held;
    uint64_t after = 0;
    for (bool more = true; more;) {
      size_t taken = 0;
      MutexLock lock(session->mutex);
      auto it = session->leases.upper_bound(after);
      for (; it != session->leases.end() && taken < kLeasesAtOnce; ++it, ++taken) {
        held.Add(*it->second);
        after = it->first;
      }
      more = it != session->leases.end();
    }
    for (const auto& [device, holding] : held.all()) {
      Holding& sum = all[{session->identity.uid, device->name, "private"}];
      sum.regions += holding.regions;
      sum.bytes += holding.bytes;
    }
  }
  return all;
}

}  // namespace mrd::broker
