// Hostile bytes on the gRPC socket, and tokens that are not one's own.
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>

#include <random>
#include <thread>

#include "mrd/v1/registration.grpc.pb.h"
#include "tests/e2e/hoarder.h"
#include "tests/e2e/http2.h"
#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

constexpr char kGetStatus[] = "/mrd.v1.Sessions/GetStatus";
constexpr char kListLeases[] = "/mrd.v1.Registration/ListLeases";

class HostileRpcTest : public DaemonTest {
 protected:
  const Memory memory_{kPage};
};

TEST_F(HostileRpcTest, GarbageInsteadOfHttp2) {
  Start();
  std::mt19937 random(9);
  for (int i = 0; i < Scaled(200); ++i) {
    const UniqueFd connection(Connect(dir() + "/mrd.sock", SOCK_STREAM));
    std::string bytes(random() % 2000 + 24, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    char answer[4096];
    while (recv(connection.get(), answer, sizeof answer, 0) > 0) {
    }  // Until it is closed; the socket would block for ever if it were not.
  }
  ExpectNothingHeld();
}

TEST_F(HostileRpcTest, GarbageAfterAnHttp2Preface) {
  Start();
  std::mt19937 random(10);
  for (int i = 0; i < Scaled(200); ++i) {
    Http2 connection(dir());
    for (int k = 0; k < 20; ++k) {
      std::string payload(random() % 64, '\0');
      for (char& byte : payload) byte = static_cast<char>(random());
      connection.Send({static_cast<unsigned char>(random() % 12),
                       static_cast<unsigned char>(random()), static_cast<uint32_t>(random() % 8),
                       payload});
    }
    connection.Close();
  }
  ExpectNothingHeld();
}

TEST_F(HostileRpcTest, MessagesThatAreNone) {
  Start();
  RawClient client(dir());
  Http2 connection(dir());
  uint32_t stream = 1;
  for (const std::string message : {"\xff\xff\xff\xff", "\x0a\x7f", "\x12"}) {
    ASSERT_TRUE(connection.Call(stream, "/mrd.v1.Registration/Register", client.token(), message));
    EXPECT_TRUE(connection.ReadType(Http2::kHeaders)) << "an answer, if a refusal";
    stream += 2;
  }
  ASSERT_TRUE(connection.Call(stream, "/mrd.v1.Nothing/AtAll", client.token(), ""));
  EXPECT_TRUE(connection.ReadType(Http2::kHeaders));
  EXPECT_TRUE(client.GetStatus().ok());
}

TEST_F(HostileRpcTest, AFiveMegabyteMessageIsRefusedAndTheSessionGoesOn) {
  Start();
  RawClient client(dir());
  auto request = RequestFor(client.Pass(memory_), memory_);
  request.set_request_id(std::string(5 << 20, 'x'));
  const auto answer = client.Register(request);
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << answer.text();
  EXPECT_TRUE(client.GetStatus().ok());
  request.clear_request_id();
  EXPECT_TRUE(client.Register(request).ok());
}

TEST_F(HostileRpcTest, TheLargestRequestThatMeansSomethingIsTaken) {
  Start();
  RawClient client(dir());
  v1::RegisterRequest request;
  for (int i = 0; i < 10000; ++i) {  // Numbers of ten bytes each.
    v1::Range* range = request.add_ranges();
    range->set_buffer_id(UINT64_MAX);
    range->set_offset(UINT64_MAX);
    range->set_length(UINT64_MAX);
    range->set_addr(UINT64_MAX);
  }
  EXPECT_GT(request.ByteSizeLong(), 450000u);
  EXPECT_LT(request.ByteSizeLong(), 500000u);
  ExpectRefusal(client.Register(request), v1::BUFFER_UNKNOWN);  // It was read.
}

TEST_F(HostileRpcTest, RequestsThatAreNeverCompleteTakeBoundedMemoryAndOthersAreServed) {
  constexpr uint64_t kMost = 64 << 20;
  Start({.set = "rpc_memory=" + std::to_string(kMost)});
  RawClient other(dir());
  const uint64_t before = daemon().Pss();
  std::vector<std::unique_ptr<Hoarder>> hoarders;  // They ask for 4 GB.
  for (int i = 0; i < 40; ++i) {
    hoarders.push_back(std::make_unique<Hoarder>(dir(), 100, 1 << 20));
  }
  const auto until = Clock::now() + seconds(8);
  auto next_look = Clock::now();
  uint64_t most = 0;
  int served = 0;
  while (Clock::now() < until) {
    for (auto& hoarder : hoarders) {
      // One that is thrown out comes again.
      if (!hoarder->Pump()) hoarder = std::make_unique<Hoarder>(dir(), 100, 1 << 20);
    }
    if (Clock::now() < next_look) continue;
    next_look = Clock::now() + milliseconds(100);
    const uint64_t now = daemon().Pss();
    most = std::max(most, now - std::min(before, now));
    ASSERT_LT(most, (kSanitized ? 30 : 4) * kMost) << "after " << served << " calls";
    // A connection without a call may be closed for want of memory: the next try makes a new one,
    // as the client library's do.
    ASSERT_TRUE(WaitUntil(Promised(seconds(5)), [&] { return other.GetStatus().ok(); }));
    ++served;
  }
  printf("at most %llu MiB more; %d calls of others served\n",
         static_cast<unsigned long long>(most >> 20), served);
  hoarders.clear();
  EXPECT_TRUE(WaitUntil(Promised(seconds(5)), [&] { return other.GetStatus().ok(); }));
}

TEST_F(HostileRpcTest, MetadataHasItsBound) {
  Start();
  RawClient client(dir());
  grpc::ClientContext context;
  client.Prepare(&context);
  context.AddMetadata("x-much", std::string(64 << 10, 'x'));
  v1::ListLeasesResponse response;
  const auto stub = v1::Registration::NewStub(MakeChannel(dir()));
  const auto status = stub->ListLeases(&context, {}, &response);
  EXPECT_FALSE(status.ok());
  EXPECT_TRUE(client.GetStatus().ok());
}

TEST_F(HostileRpcTest, AnswersThatAreNotReadAreCancelledAfterTenSeconds) {
  Start({.set = "calls=4"});
  RawClient client(dir());
  RawClient other(dir());
  Http2 stuck(dir(), /*window=*/0);
  const auto began = Clock::now();
  for (uint32_t stream = 1; stream < 8; stream += 2) {
    ASSERT_TRUE(stuck.Call(stream, kGetStatus, client.token(), ""));
  }
  // Four answers cannot go out: the session has no call left, others have.
  ASSERT_TRUE(WaitUntil(kPatience, [&] { return client.GetStatus().reason() == v1::BUSY; }));
  ExpectLimit(client.GetStatus(), "calls in flight", 4, 4);
  milliseconds slowest{0};
  while (client.GetStatus().reason() == v1::BUSY) {
    ASSERT_LT(Clock::now() - began, seconds(20)) << "the answers are not cancelled";
    const auto before = Clock::now();
    ASSERT_TRUE(other.GetStatus().ok());
    slowest = std::max(slowest, std::chrono::duration_cast<milliseconds>(Clock::now() - before));
  }
  EXPECT_GE(Clock::now() - began, seconds(9));
  EXPECT_LT(Clock::now() - began, seconds(13));
  EXPECT_LT(slowest, Promised(milliseconds(100))) << "nobody else was held up";
  const auto last = stuck.ReadType(Http2::kGoAway);
  ASSERT_TRUE(last) << "it is told, should it ever read";
  EXPECT_NE(last->payload.find("answers that it does not read"), std::string::npos);
  EXPECT_TRUE(stuck.IsClosed());
  EXPECT_TRUE(client.GetStatus().ok());
}

TEST_F(HostileRpcTest, AClientThatNeverReadsItsSocketHoldsUpNobody) {
  Start();
  RawClient client(dir());
  RawClient other(dir());
  auto request = RequestFor(client.Pass(memory_), memory_);
  for (int i = 1; i < 1000; ++i) *request.add_ranges() = request.ranges(0);
  ASSERT_TRUE(client.Register(request).ok());
  // Each answer is some 40 kB: the socket's buffer and the window are full with a few of them.
  Http2 deaf(dir(), /*window=*/(1u << 31) - 1);
  deaf.Send({Http2::kWindowUpdate, 0, 0, std::string("\x7f\xff\x00\x00", 4)});
  for (uint32_t stream = 1; stream < 100; stream += 2) {
    ASSERT_TRUE(deaf.Call(stream, kListLeases, client.token(), ""));
  }
  const auto until = Clock::now() + seconds(3);
  int calls = 0;
  while (Clock::now() < until) {
    const auto before = Clock::now();
    ASSERT_TRUE(other.GetStatus().ok());
    EXPECT_LT(Clock::now() - before, Promised(milliseconds(100)));
    ++calls;
  }
  EXPECT_GT(calls, 20);
  EXPECT_TRUE(client.GetStatus().ok()) << "its other connection works";
}

TEST_F(HostileRpcTest, SilentConnectionsAreClosedAfterTheIdleTime) {
  Start({.set = "idle_ms=1000"});
  const size_t fds = daemon().resources().fds;
  const auto began = Clock::now();
  const UniqueFd nothing(Connect(dir() + "/mrd.sock", SOCK_STREAM));
  Http2 preface(dir());
  EXPECT_TRUE(preface.IsClosed(seconds(30)));
  EXPECT_GE(Clock::now() - began, milliseconds(900));
  char bytes[4096];
  ssize_t length = 0;
  const timeval patience{30, 0};
  setsockopt(nothing.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  while ((length = recv(nothing.get(), bytes, sizeof bytes, 0)) > 0) {
  }
  EXPECT_EQ(length, 0) << "closed, not still open";
  printf("closed after %lld ms\n",
         static_cast<long long>(
             std::chrono::duration_cast<milliseconds>(Clock::now() - began).count()));
  EXPECT_TRUE(WaitUntil(kPatience, [&] { return daemon().resources().fds <= fds; }));
}

class TokenTest : public EachFabricTest {
 protected:
  const Memory memory_{kPage};
};
MRD_ON_EACH_FABRIC(TokenTest);

TEST_P(TokenTest, NoTokenAnAlteredOneAndOneOfOtherLengths) {
  StartThis();
  RawClient client(dir());
  const std::string token = client.token();
  ASSERT_EQ(token.size(), 16u);
  std::vector<std::string> wrong = {
      "",          std::string(1, '\0'), std::string(16, '\0'), token.substr(0, 15),
      token + "x", token + token};
  for (int bit = 0; bit < 128; bit += 9) {
    wrong.push_back(token);
    wrong.back()[bit / 8] ^= static_cast<char>(1 << bit % 8);
  }
  const Holdings before = Look();
  for (const std::string& each : wrong) {
    client.set_token(each);
    ExpectRefusal(client.GetStatus(), v1::SESSION_UNKNOWN);
    ExpectRefusal(client.ListDevices(), v1::SESSION_UNKNOWN);
    ExpectRefusal(client.Register(RequestFor(1, memory_)), v1::SESSION_UNKNOWN);
    ExpectRefusal(client.Deregister({1}), v1::SESSION_UNKNOWN);
    ExpectRefusal(client.Listen(address()), v1::SESSION_UNKNOWN);
    ExpectRefusal(client.ListSessions(), v1::SESSION_UNKNOWN);
  }
  EXPECT_EQ(Look(), before);
  client.set_token(token);
  EXPECT_TRUE(client.GetStatus().ok());
}

TEST_P(TokenTest, ATokenEndsWithItsSession) {
  StartThis();
  RawClient client(dir());
  client.RegisterAll(memory_);
  client.HangUp();
  ASSERT_TRUE(WaitUntil(Promised(seconds(1)), [&] { return !client.GetStatus().ok(); }));
  ExpectRefusal(client.GetStatus(), v1::SESSION_UNKNOWN);
  ExpectRefusal(client.Register(RequestFor(1, memory_)), v1::SESSION_UNKNOWN);
}

TEST_P(TokenTest, AForeignSessionsLeasesBuffersAndEndpointsAreOutOfReach) {
  StartThis();
  RawClient owner(dir());
  RawClient thief(dir());
  const v1::Lease lease = owner.RegisterAll(memory_);
  const auto listener = owner.Listen(address()).response.endpoint();
  const Holdings before = Look();
  ExpectRefusal(thief.Deregister({lease.lease_id()}), v1::LEASE_UNKNOWN);
  ExpectRefusal(thief.Release({lease.buffer_id()}), v1::BUFFER_UNKNOWN);
  ExpectRefusal(thief.Disconnect(listener.endpoint_id()), v1::ENDPOINT_UNKNOWN);
  EXPECT_EQ(thief.ListLeases().response.leases_size(), 0);
  EXPECT_EQ(thief.ListEndpoints().response.endpoints_size(), 0);
  EXPECT_EQ(Look(), before);
}

TEST_P(TokenTest, TokensAreNeverLogged) {
  StartThis({.log_level = "debug"});
  std::string token;
  {
    RawClient client(dir());
    client.RegisterAll(memory_);
    token = client.token();
  }
  const std::string log = daemon().Log();
  EXPECT_NE(log.find("attached"), std::string::npos) << "it does log";
  EXPECT_EQ(log.find(token), std::string::npos);
  std::string hex;
  for (const char c : token) {
    char two[3];
    snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    hex += two;
  }
  EXPECT_EQ(log.find(hex), std::string::npos);
}

}  // namespace
}  // namespace mrd::e2e
