// A gRPC status as the library's callers see it.
#ifndef MRD_CLIENT_RPC_STATUS_H_
#define MRD_CLIENT_RPC_STATUS_H_

#include "absl/status/status.h"

namespace grpc {
class Status;
}

namespace mrd::internal {

// The same code and message, with the ErrorDetail that `grpc-status-details-bin` carries. Details
// of other types, and bytes that are no mrd.v1.Status, are left out.
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace mrd::internal

#endif  // MRD_CLIENT_RPC_STATUS_H_
