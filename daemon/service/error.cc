#include "daemon/service/error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "mrd/v1/status.h"

namespace mrd::service {

grpc::Status ToGrpc(const absl::Status& status) {
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message(status.message());
  const auto detail = DetailOf(status);
  if (!detail) return grpc::Status(code, message);
  v1::Status details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(message);
  details.add_details()->PackFrom(*detail);
  return grpc::Status(code, message, details.SerializeAsString());
}

absl::StatusOr<broker::SessionRef> SessionOf(const grpc::ServerContext& context,
                                             broker::Broker& broker) {
  const auto& metadata = context.client_metadata();
  const auto token = metadata.find("mrd-session-bin");
  if (token == metadata.end()) {
    return MakeError(v1::SESSION_UNKNOWN, "the call carries no session token",
                     {.advice = "Attach first, and send the token as metadata mrd-session-bin"});
  }
  return broker.Find(std::string(token->second.data(), token->second.size()));
}

absl::Status TooManyCalls(const char* of, size_t limit) {
  return MakeError(v1::BUSY, absl::StrCat("the ", of, " has ", limit, " calls in flight"),
                   {.limit_name = absl::StrCat("calls in flight of the ", of),
                    .limit = limit,
                    .used = limit,
                    .advice = "Wait for answers before making more calls"});
}

absl::Status NotAdmin(const std::string& socket) {
  return MakeError(v1::POLICY_DENIED, "only admin sessions may call this",
                   {.advice = absl::StrCat("Attach over the admin socket, ", socket)});
}

}  // namespace mrd::service
