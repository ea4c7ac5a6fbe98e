// What is told of a call that has been answered: refusals are counted by reason, those that an
// operator can do something about are logged, and at level debug every call is.
#ifndef MRD_DAEMON_SERVICE_CALL_LOG_H_
#define MRD_DAEMON_SERVICE_CALL_LOG_H_

#include <chrono>
#include <string>

#include "absl/status/status.h"
#include "daemon/broker/broker.h"

namespace mrd::service {

// Whether every call is logged (level debug).
bool CallsAreLogged();

// "Register" of "RegisterRequest".
std::string MethodOf(const std::string& request);

// `session`: null where the call was not let in.
void TellFinished(broker::Broker& broker, const broker::Session* session,
                  const std::string& request, const absl::Status& status,
                  std::chrono::nanoseconds took);

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_CALL_LOG_H_
