// What is told of a session that has ended: counted, and a line where an operator may want to know.
#ifndef MRD_DAEMON_BROKER_SESSION_END_H_
#define MRD_DAEMON_BROKER_SESSION_END_H_

#include "daemon/broker/broker.h"

namespace mrd::broker {

// "hang-up", "pidfd", "protocol", "revoked", "shutdown", "drained".
const char* NameOf(SessionEnd how);

// REQUIRES: it holds nothing any more.
void TellEnded(Broker& broker, Session& session);

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_SESSION_END_H_
