// Attempts to connect to a peer.
#ifndef MRD_DAEMON_FABRIC_VERBS_CONNECTOR_H_
#define MRD_DAEMON_FABRIC_VERBS_CONNECTOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/cm.h"

namespace mrd::fabric::verbs {

class ConnectAttempt;

// Thread safety: any thread.
class Connector {
 public:
  explicit Connector(Cm& cm);
  // Ends all attempts.
  ~Connector();
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;

  void Connect(const std::string& address, uint32_t port, const std::string& source,
               ConnectionSpec spec, EstablishedCallback done);

 private:
  Cm& cm_;
  // Shared with the attempts: the last of them may end after this.
  const std::shared_ptr<std::atomic<uint64_t>> count_;
  // The loop thread's own.
  std::unordered_set<std::shared_ptr<ConnectAttempt>> attempts_;
  uint64_t on_gone_ = 0;
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_CONNECTOR_H_
