// Health and reflection need no session.
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

grpc::ByteBuffer Bytes(const std::string& text) {
  const grpc::Slice slice(text);
  return grpc::ByteBuffer(&slice, 1);
}

std::string Text(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!bytes.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

class ServiceTest : public DaemonTest {
 protected:
  void SetUp() override {
    Start();
    channel_ = MakeChannel(dir());
    stub_ = std::make_unique<grpc::GenericStub>(channel_);
    context_ = std::make_unique<grpc::ClientContext>();
    context_->set_deadline(std::chrono::system_clock::now() + kPatience);
  }
  void TearDown() override {
    context_ = nullptr;
    stub_ = nullptr;
    channel_ = nullptr;
    DaemonTest::TearDown();
  }
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<grpc::GenericStub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;  // Holds the connection, too.
  grpc::CompletionQueue queue_;
};

TEST_F(ServiceTest, HealthSaysServing) {
  auto call =
      stub_->PrepareUnaryCall(context_.get(), "/grpc.health.v1.Health/Check", Bytes(""), &queue_);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  ASSERT_TRUE(Next());
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(Text(answer), std::string("\x08\x01", 2));  // HealthCheckResponse{status: SERVING}
}

TEST_F(ServiceTest, ReflectionListsTheServices) {
  auto call = stub_->PrepareCall(
      context_.get(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue_);
  call->StartCall(nullptr);
  ASSERT_TRUE(Next());
  call->Write(Bytes("\x3a\x01*"), nullptr);  // ServerReflectionRequest{list_services: "*"}
  ASSERT_TRUE(Next());
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  ASSERT_TRUE(Next());
  const std::string text = Text(answer);
  for (const char* service :
       {"mrd.v1.Admin", "mrd.v1.Devices", "mrd.v1.Endpoints", "mrd.v1.Registration",
        "mrd.v1.Sessions", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}) {
    EXPECT_NE(text.find(service), std::string::npos) << service;
  }
  call->WritesDone(nullptr);
  ASSERT_TRUE(Next());
  grpc::Status status;
  call->Finish(&status, nullptr);
  ASSERT_TRUE(Next());
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServiceTest, OtherServicesDoNeedOne) {
  auto call =
      stub_->PrepareUnaryCall(context_.get(), "/mrd.v1.Devices/ListDevices", Bytes(""), &queue_);
  call->StartCall();
  grpc::ByteBuffer answer;
  grpc::Status status;
  call->Finish(&answer, &status, nullptr);
  ASSERT_TRUE(Next());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(DetailOf(status).reason(), v1::SESSION_UNKNOWN);
}

}  // namespace
}  // namespace mrd::e2e
