#include "client/rpc_status.h"

#include <grpcpp/support/status.h>
#include <gtest/gtest.h>

#include "client/local_error.h"
#include "mrd/v1/error.pb.h"
#include "mrd/v1/status.h"

namespace mrd::internal {
namespace {

TEST(FromGrpc, KeepsEveryCode) {
  for (int code = 0; code <= 16; ++code) {
    const absl::Status status = FromGrpc(grpc::Status(static_cast<grpc::StatusCode>(code), "m"));
    EXPECT_EQ(static_cast<int>(status.code()), code);
    EXPECT_EQ(std::string(status.message()), code == 0 ? "" : "m");
    EXPECT_EQ(ReasonOf(status), v1::REASON_UNSPECIFIED);
  }
}

TEST(FromGrpc, FindsTheDetailAmongOthers) {
  v1::ErrorDetail detail;
  detail.set_reason(v1::DEVICE_LIMIT);
  detail.set_limit(12);
  v1::Status details;
  details.add_details()->PackFrom(v1::Status());
  details.add_details()->PackFrom(detail);
  const absl::Status status = FromGrpc(
      grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "m", details.SerializeAsString()));
  EXPECT_EQ(ReasonOf(status), v1::DEVICE_LIMIT);
  EXPECT_EQ(DetailOf(status)->limit(), 12u);
}

TEST(FromGrpc, StandsDetailsThatAreNone) {
  const absl::Status status =
      FromGrpc(grpc::Status(grpc::StatusCode::INTERNAL, "m", "\xff\xff not a message"));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_FALSE(DetailOf(status).has_value());
}

// All of it goes twice, encoded, into metadata, of which a client takes 8 KiB.
TEST(MakeError, IsBoundedWhateverNamesAreInIt) {
  const std::string name = "/" + std::string(4000, 'c') + "\n";
  const absl::Status status =
      MakeError(v1::QUOTA_SESSIONS, "more of cgroup " + name,
                {.limit_name = "sessions of cgroup " + name, .advice = "Use " + name});
  const auto detail = DetailOf(status);
  EXPECT_LT(status.message().size(), 1700u);
  EXPECT_LT(detail->SerializeAsString().size(), 1000u);
  EXPECT_EQ(detail->limit_name().substr(0, 21), "sessions of cgroup /c");
  EXPECT_NE(std::string(status.message()).find(detail->advice()), std::string::npos);
}

TEST(LocalError, SaysWhatWhyAndWhatToDo) {
  const absl::Status status =
      LocalError(absl::StatusCode::kUnavailable, "cannot do it", ENOENT, "Do that.");
  EXPECT_EQ(std::string(status.message()), "cannot do it: No such file or directory. Do that.");
  EXPECT_EQ(DetailOf(status)->errno_value(), ENOENT);
  EXPECT_EQ(DetailOf(status)->errno_name(), "ENOENT");
  EXPECT_EQ(DetailOf(status)->advice(), "Do that.");
  EXPECT_EQ(ReasonOf(status), v1::REASON_UNSPECIFIED);
}

}  // namespace
}  // namespace mrd::internal
