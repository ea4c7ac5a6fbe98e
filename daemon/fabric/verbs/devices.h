// All RDMA devices of the host, opened once and kept open for the process' life.
#ifndef MRD_DAEMON_FABRIC_VERBS_DEVICES_H_
#define MRD_DAEMON_FABRIC_VERBS_DEVICES_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/fabric/verbs/api.h"
#include "daemon/fabric/verbs/device.h"

namespace mrd::fabric::verbs {

// Thread safety: any thread; the list does not change.
class Devices {
 public:
  // Opens all. One that cannot be opened is logged and left out; none at all is an error.
  static absl::StatusOr<std::unique_ptr<Devices>> Open(Api& api);
  ~Devices();
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  // By name.
  const std::vector<std::unique_ptr<Device>>& all() const { return devices_; }
  // Null: none of that name, or of that context.
  Device* Find(const std::string& name) const;
  Device* Find(const ibv_context* context) const;

 private:
  explicit Devices(Api& api) : api_(api) {}

  void OpenOfRdmaCm();
  void OpenOthers();
  void Add(ibv_context* context, bool endpoints, bool owned);
  void Failed(const std::string& name, absl::Status status);

  Api& api_;
  ibv_context** contexts_ = nullptr;  // rdma_cm's. Freeing the list gives up the devices.
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::string> failed_;
  absl::Status first_failure_;
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_DEVICES_H_
