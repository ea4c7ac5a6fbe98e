#include "client/rpc_status.h"

#include <grpcpp/support/status.h>

#include "mrd/v1/status.h"

namespace mrd::internal {

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  // Both libraries number the canonical codes alike.
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  v1::Status details;
  if (!details.ParseFromString(status.error_details())) return result;
  for (const auto& any : details.details()) {
    v1::ErrorDetail detail;
    if (any.UnpackTo(&detail)) return WithDetail(result, detail);
  }
  return result;
}

}  // namespace mrd::internal
