// An opening of a device by an earlier process, adopted by its descriptor.
#ifndef MRD_DAEMON_FABRIC_VERBS_ADOPTED_DEVICE_H_
#define MRD_DAEMON_FABRIC_VERBS_ADOPTED_DEVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "daemon/fabric/event_loop.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/uverbs.h"
#include "daemon/unique_fd.h"

namespace mrd::fabric::verbs {

// Shared by the domains, regions and connections that were adopted on it. Thread-safe.
class VerbsAdoptedDevice final : public AdoptedDevice,
                                 public std::enable_shared_from_this<VerbsAdoptedDevice> {
 public:
  // Takes kept.fd. `loop` outlives the connections.
  VerbsAdoptedDevice(Uverbs& uverbs, EventLoop& loop, DeviceInfo info, Keepable kept,
                     std::function<void()> closed);
  ~VerbsAdoptedDevice() override;

  const DeviceInfo& info() const override { return info_; }
  bool IsThere() override { return uverbs_.IsThere(context_, info_.name); }
  absl::StatusOr<Handles> List(Object object) override;
  absl::StatusOr<RegionFacts> Query(uint32_t region) override;
  absl::Status End(Object object, uint32_t handle) override;
  std::shared_ptr<Domain> AdoptDomain(uint32_t handle) override;
  std::unique_ptr<Region> AdoptRegion(uint32_t handle, uint32_t lkey, uint32_t rkey) override;
  std::unique_ptr<Connection> AdoptConnection(const ConnectionHandles& handles,
                                              std::shared_ptr<Domain> domain, ConnectionInfo info,
                                              std::function<void(bool error)> left) override;

  // Registers a new region in the domain of this handle. Errors: as Domain::Register; UNSUPPORTED.
  absl::StatusOr<std::unique_ptr<Region>> Register(uint32_t domain, const RegionSpec& spec);
  // Ends the connection's queue pair, which may be done twice, and what belongs to it.
  void EndConnection(const ConnectionHandles& handles);

 private:
  absl::Status Failed(const std::string& what, int error) const;

  Uverbs& uverbs_;
  EventLoop& loop_;
  const DeviceInfo info_;
  const UniqueFd fd_;
  const UverbsContext context_;
  const std::function<void()> closed_;
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_ADOPTED_DEVICE_H_
