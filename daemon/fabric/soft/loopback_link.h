// A connection between two endpoints of this daemon, and its two ends.
#ifndef MRD_DAEMON_FABRIC_SOFT_LOOPBACK_LINK_H_
#define MRD_DAEMON_FABRIC_SOFT_LOOPBACK_LINK_H_

#include <memory>
#include <string>

#include "daemon/fabric/event_loop.h"
#include "daemon/fabric/fabric.h"

namespace mrd::fabric {

// What one end brings to a connection.
struct LoopbackEnd {
  ConnectionInfo info;
  std::shared_ptr<Domain> domain;
  std::function<void(bool error)> left;
  EstablishedCallback done;
  std::string peer_data;
};

// Connects two ends: calls both `done`s, first `a`'s. When one end's connection is destroyed, the
// other's `left` is called. Loop thread only.
void EstablishLoopback(EventLoop& loop, LoopbackEnd a, LoopbackEnd b);

}  // namespace mrd::fabric

#endif  // MRD_DAEMON_FABRIC_SOFT_LOOPBACK_LINK_H_
