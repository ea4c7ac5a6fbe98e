#include "daemon/broker/ledger/version.h"

namespace mrd::broker::ledger {

const Version kThisVersion = {.number = 1, .oldest_written = 1, .oldest_reader = 1};

std::string BytesOf(const google::protobuf::MessageLite& record) {
  return record.SerializeAsString();
}

}  // namespace mrd::broker::ledger
