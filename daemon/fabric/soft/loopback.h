// Connections between endpoints of this daemon: who listens on which port.
#ifndef MRD_DAEMON_FABRIC_SOFT_LOOPBACK_H_
#define MRD_DAEMON_FABRIC_SOFT_LOOPBACK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/fabric/event_loop.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/soft/loopback_port.h"

namespace mrd::fabric {

// Thread safety: any thread. All state is the loop thread's, so none of it is locked.
class Loopback {
 public:
  Loopback() : loop_("mrd-soft") {}
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address, uint32_t port,
                                                   int backlog);
  void Connect(const std::string& address, uint32_t port, const std::string& source,
               ConnectionSpec spec, EstablishedCallback done);

 private:
  class ListenerImpl;

  absl::StatusOr<std::shared_ptr<LoopbackPort>> Bind(const std::string& address, uint32_t port,
                                                     int backlog);
  void Request(uint32_t port, const std::string& source, ConnectionSpec spec,
               EstablishedCallback done);
  // A port of the dynamic range that nobody listens on; 0: all are taken.
  uint32_t FreePort();

  std::map<uint32_t, std::shared_ptr<LoopbackPort>> ports_;
  uint32_t last_port_ = 0;
  uint32_t last_qp_ = 0;
  EventLoop loop_;  // Last, so that its thread ends first: what is posted uses the others.
};

}  // namespace mrd::fabric

#endif  // MRD_DAEMON_FABRIC_SOFT_LOOPBACK_H_
