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
    for (const KeyView& key : lease.view.keys) {
      Holding& holding = Of(key.device, lease.view.domain != nullptr);
      ++holding.regions;
      holding.bytes += lease.each().bytes;
    }
  }

  struct Part {
    DeviceRef device;
    bool named;  // In named domains; else in the session's private one.
    Holding holding;
  };
  const std::vector<Part>& parts() const { return parts_; }

 private:
  Holding& Of(const DeviceRef& device, bool named) {
    for (Part& part : parts_) {
      if (part.device == device && part.named == named) return part.holding;
    }
    return parts_.emplace_back(Part{device, named, {}}).holding;
  }

  std::vector<Part> parts_;
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
    for (const auto& part : held.parts()) {
      // A name would be a value that clients choose.
      const char* const domain = part.named ? "named" : "private";
      Holding& sum = all[{session->identity.uid, part.device->name, domain}];
      sum.regions += part.holding.regions;
      sum.bytes += part.holding.bytes;
    }
  }
  return all;
}

}  // namespace mrd::broker
