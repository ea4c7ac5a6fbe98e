// Protection domains and regions: the hot path. Registering and deregistering take no lock,
// allocate nothing but the Region, and log nothing.
#ifndef MRD_DAEMON_FABRIC_VERBS_DOMAIN_H_
#define MRD_DAEMON_FABRIC_VERBS_DOMAIN_H_

#include <memory>

#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/device.h"

namespace mrd::fabric::verbs {

class VerbsDomain final : public Domain {
 public:
  // Owns `pd`.
  VerbsDomain(std::shared_ptr<Device> device, ibv_pd* pd);
  ~VerbsDomain() override;

  ibv_pd* pd() const { return pd_; }

  absl::StatusOr<std::unique_ptr<Region>> Register(const RegionSpec& spec) override;
  std::string device() const override { return device_->info().name; }
  uint64_t generation() const override { return device_->info().generation; }
  uint32_t handle() const override { return pd_->handle; }

 private:
  const std::shared_ptr<Device> device_;
  ibv_pd* const pd_;
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_DOMAIN_H_
