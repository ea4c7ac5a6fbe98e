// The end of all that sessions have on a device that went away: endpoints first, so that no peer
// reaches a region that is being freed, then regions, then domains; then each session is told.
#ifndef MRD_DAEMON_BROKER_REMOVAL_H_
#define MRD_DAEMON_BROKER_REMOVAL_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/broker/endpoints.h"

namespace mrd::broker {

// One opening of one device; runs on the registrar's threads, a task a session, in the daemon's own
// share: no session's other work holds up the kernel, which may wait for the end of the device.
// Sessions that are ending are left out, since their own end does the same.
class Removal {
 public:
  // Takes everything on the device out of the sessions before it returns; `done` is called when all
  // of it has ended, by this thread or another. REQUIRES: DeviceWatch::IsGone is true of it.
  static void Start(Broker& broker, const fabric::DeviceInfo& device, std::function<void()> done);

  ~Removal();
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;

 private:
  // What one session had there.
  struct Part {
    Part(Broker& broker, const SessionRef& session) MRD_REQUIRES(session->mutex)
        : work(broker, session) {}
    bool empty() const {
      return endpoints.empty() && whole.empty() && split.empty() && domains.empty();
    }

    Work work;
    std::vector<std::shared_ptr<Endpoint>> endpoints;
    std::vector<std::unique_ptr<Lease>> whole;  // Leases that have nothing left.
    std::vector<std::unique_ptr<Lease>> split;  // The lost region of leases that go on elsewhere.
    std::vector<SessionDomain> domains;
  };

  Removal(Broker& broker, fabric::DeviceInfo device, std::function<void()> done)
      : broker_(broker), device_(std::move(device)), done_(std::move(done)) {}

  std::unique_ptr<Part> Take(const SessionRef& session);
  void TakeEndpoints(Session& session, Part& part) const MRD_REQUIRES(session.mutex);
  void TakeDomains(Session& session, Part& part) const MRD_REQUIRES(session.mutex);
  void TakeLeases(Session& session, Part& part) const MRD_REQUIRES(session.mutex);
  std::unique_ptr<Lease> Split(Lease& lease) const;
  // An older generation goes with it.
  bool IsIts(const fabric::Domain& domain) const {
    return domain.generation() <= device_.generation && domain.device() == device_.name;
  }
  void End(Part& part);
  void EndLeases(Part& part);
  void Tell(const Part& part, const std::vector<uint64_t>& leases,
            const std::vector<uint64_t>& endpoints) const;

  Broker& broker_;
  const fabric::DeviceInfo device_;
  const std::function<void()> done_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  size_t sessions_ = 0;
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_REMOVAL_H_
