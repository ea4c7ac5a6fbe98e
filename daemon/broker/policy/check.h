// What the text format cannot say of a policy: whether it makes sense.
#ifndef MRD_DAEMON_BROKER_POLICY_CHECK_H_
#define MRD_DAEMON_BROKER_POLICY_CHECK_H_

#include <google/protobuf/text_format.h>

#include "daemon/broker/policy/parse.h"

namespace mrd::policy {

// Adds what is wrong with `policy` to parsed->problems, with the places that the parser wrote, and
// what may surprise to parsed->notes.
void Check(const v1::Policy& policy, const google::protobuf::TextFormat::ParseInfoTree& places,
           Parsed* parsed);

}  // namespace mrd::policy

#endif  // MRD_DAEMON_BROKER_POLICY_CHECK_H_
