// The end of a session: endpoints first, so that no peer reaches a region that is being freed, then
// regions, domains and buffers.
#ifndef MRD_DAEMON_BROKER_TEARDOWN_H_
#define MRD_DAEMON_BROKER_TEARDOWN_H_

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/broker/endpoints.h"

namespace mrd::broker {

// Runs on the registrar's threads; keeps itself alive by the tasks that it queues.
class Teardown : public std::enable_shared_from_this<Teardown> {
 public:
  // Does nothing where the session is ending already.
  static void Start(Broker& broker, const SessionRef& session, SessionEnd how);

 private:
  Teardown(Broker& broker, Work work) : broker_(broker), work_(std::move(work)) {}

  void EndEndpoints();
  void EndRegions(size_t part);
  void EndRest();

  Broker& broker_;
  const Work work_;
  std::map<uint64_t, std::shared_ptr<Endpoint>> endpoints_;
  std::vector<std::vector<std::unique_ptr<Lease>>> parts_;  // Ended side by side.
  std::atomic<size_t> parts_left_{0};
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_TEARDOWN_H_
