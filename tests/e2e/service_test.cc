// Health and reflection need no session.
#include <grpcpp/grpcpp.h>

#include "gmock/gmock.h"
#include "tests/e2e/daemon_test.h"
#include "tests/e2e/reflection_client.h"

namespace mrd::e2e {
namespace {

class ServiceTest : public DaemonTest {
 protected:
  void SetUp() override {
    Start();
    channel_ = MakeChannel(dir());
  }
  void TearDown() override {
    channel_ = nullptr;
    DaemonTest::TearDown();
  }
  grpc::Status Call(const std::string& method, std::string* response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    return CallRaw(channel_, &context, method, "", response);
  }

  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(ServiceTest, HealthSaysServing) {
  std::string answer;
  const grpc::Status status = Call("/grpc.health.v1.Health/Check", &answer);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(answer, std::string("\x08\x01", 2));  // HealthCheckResponse{status: SERVING}
}

TEST_F(ServiceTest, ReflectionListsTheServices) {
  EXPECT_THAT(ListServices(channel_),
              testing::UnorderedElementsAre("mrd.v1.Admin", "mrd.v1.Devices", "mrd.v1.Domains",
                                            "mrd.v1.Endpoints", "mrd.v1.Registration",
                                            "mrd.v1.Sessions", "grpc.health.v1.Health",
                                            "grpc.reflection.v1alpha.ServerReflection"));
}

TEST_F(ServiceTest, OtherServicesDoNeedOne) {
  std::string answer;
  const grpc::Status status = Call("/mrd.v1.Devices/ListDevices", &answer);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(DetailOf(status).reason(), v1::SESSION_UNKNOWN);
}

}  // namespace
}  // namespace mrd::e2e
