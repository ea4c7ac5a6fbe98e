// Refusals on their way to gRPC, in one place; and who may call.
#ifndef MRD_DAEMON_SERVICE_ERROR_H_
#define MRD_DAEMON_SERVICE_ERROR_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/statusor.h"
#include "daemon/broker/broker.h"

namespace mrd::service {

// The canonical code, the message, and mrd.v1.Status with the ErrorDetail as
// `grpc-status-details-bin`.
grpc::Status ToGrpc(const absl::Status& status);

// By the token in the call's metadata. Errors: SESSION_UNKNOWN.
absl::StatusOr<broker::SessionRef> SessionOf(const grpc::ServerContext& context,
                                             broker::Broker& broker);

// `of`: "session" or "user", which has so many, its limit.
absl::Status TooManyCalls(const char* of, size_t limit);
// `socket`: the path of the one where admins attach.
absl::Status NotAdmin(const std::string& socket);

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_ERROR_H_
