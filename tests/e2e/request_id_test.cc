// request_id makes a registration safe to repeat, whatever became of the first try.
#include <future>
#include <set>

#include "tests/e2e/daemon_test.h"
#include "tests/e2e/http2.h"

namespace mrd::e2e {
namespace {

constexpr char kRegister[] = "/mrd.v1.Registration/Register";

void ExpectSameLease(const v1::Lease& is, const v1::Lease& was) {
  EXPECT_EQ(is.lease_id(), was.lease_id());
  EXPECT_EQ(is.keys(0).lkey(), was.keys(0).lkey());
  EXPECT_EQ(is.keys(0).rkey(), was.keys(0).rkey());
  EXPECT_EQ(is.addr(), was.addr());
}

class RequestIdTest : public EachFabricTest {
 protected:
  v1::RegisterRequest Request(RawClient& client, const std::string& request_id) {
    auto request = RequestFor(client.Pass(memory_), memory_);
    request.set_request_id(request_id);
    return request;
  }
  uint64_t Regions() { return Look().regions; }

  const Memory memory_{4 * kPage};
};
MRD_ON_EACH_FABRIC(RequestIdTest);

TEST_P(RequestIdTest, S07ACutAfterTheCommitLosesNothingAndDoublesNothing) {
  StartThis();
  RawClient client(dir());
  const auto request = Request(client, "cut");
  Http2 connection(dir(), /*window=*/0);  // The answer cannot come through.
  ASSERT_TRUE(connection.Call(1, kRegister, client.token(), request.SerializeAsString()));
  ASSERT_TRUE(WaitUntil(kPatience, [&] { return Regions() == 1; })) << "the first try commits";
  const v1::Lease committed = client.ListLeases().response.leases(0);
  connection.Close();

  const auto repeat = client.Register(request);
  ASSERT_TRUE(repeat.ok()) << repeat.text();
  ASSERT_EQ(repeat.response.leases_size(), 1);
  ExpectSameLease(repeat.response.leases(0), committed);
  EXPECT_EQ(Regions(), 1u);
}

TEST_P(RequestIdTest, S07ACutAtAnyMomentEndsInOneRegion) {
  StartThis();
  RawClient client(dir());
  const int rounds = Scaled(100);
  std::set<uint64_t> leases;
  for (int i = 0; i < rounds; ++i) {
    const auto request = Request(client, "cut " + std::to_string(i));
    {
      Http2 connection(dir());
      ASSERT_TRUE(connection.Call(1, kRegister, client.token(), request.SerializeAsString()));
      // From at once to after the answer has gone out.
      std::this_thread::sleep_for(std::chrono::microseconds(20 * i));
    }
    const auto repeat = client.Register(request);
    ASSERT_TRUE(repeat.ok()) << repeat.text();
    leases.insert(repeat.response.leases(0).lease_id());
  }
  EXPECT_EQ(leases.size(), static_cast<size_t>(rounds));
  EXPECT_EQ(Regions(), static_cast<uint64_t>(rounds));
}

TEST_P(RequestIdTest, ARepeatWithOtherParametersIsRefused) {
  StartThis();
  RawClient client(dir());
  auto request = Request(client, "one");
  ASSERT_TRUE(client.Register(request).ok());
  const Holdings before = Look();
  request.mutable_ranges(0)->set_length(kPage);
  const auto answer = client.Register(request);
  EXPECT_EQ(answer.reason(), v1::REQUEST_ID_REUSED) << answer.text();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Look(), before);
}

TEST_P(RequestIdTest, ARepeatGetsTheFirstAnswerEvenWhenItsLeaseHasEnded) {
  StartThis();
  RawClient client(dir());
  const auto request = Request(client, "one");
  const auto first = client.Register(request);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(client.Deregister({first.response.leases(0).lease_id()}).ok());
  const auto repeat = client.Register(request);
  ASSERT_TRUE(repeat.ok()) << repeat.text();
  ExpectSameLease(repeat.response.leases(0), first.response.leases(0));
  EXPECT_EQ(Regions(), 0u);
}

TEST_P(RequestIdTest, AnEndedOneIsForgottenAfterAThousandLaterOnes) {
  StartThis();
  RawClient client(dir());
  const auto request = Request(client, "first");
  const auto first = client.Register(request);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(client.Deregister({first.response.leases(0).lease_id()}).ok());
  auto later = request;
  const auto pass_by = [&](int from, int to) {
    for (int i = from; i < to; ++i) {
      later.set_request_id("later " + std::to_string(i));
      const auto answer = client.Register(later);
      ASSERT_TRUE(answer.ok()) << answer.text();
      ASSERT_TRUE(client.Deregister({answer.response.leases(0).lease_id()}).ok());
    }
  };
  pass_by(0, 999);
  ExpectSameLease(client.Register(request).response.leases(0), first.response.leases(0));
  pass_by(999, 1001);
  const auto anew = client.Register(request);
  ASSERT_TRUE(anew.ok()) << anew.text();
  EXPECT_NE(anew.response.leases(0).lease_id(), first.response.leases(0).lease_id());
}

TEST_P(RequestIdTest, IdsOfTwoSessionsAreTwoIds) {
  StartThis();
  RawClient one(dir());
  RawClient two(dir());
  const auto first = one.Register(Request(one, "same"));
  const auto second = two.Register(Request(two, "same"));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(first.response.leases(0).lease_id(), second.response.leases(0).lease_id());
  EXPECT_EQ(Regions(), 2u);
}

TEST_P(RequestIdTest, ARefusedRequestIsNotRemembered) {
  StartThis();
  RawClient client(dir());
  auto request = Request(client, "one");
  const uint64_t known = request.ranges(0).buffer_id();
  request.mutable_ranges(0)->set_buffer_id(known + 7);
  EXPECT_EQ(client.Register(request).reason(), v1::BUFFER_UNKNOWN);
  request.mutable_ranges(0)->set_buffer_id(known);
  EXPECT_TRUE(client.Register(request).ok());
}

TEST_P(RequestIdTest, SixtyFourBytesAreTheMost) {
  StartThis();
  RawClient client(dir());
  EXPECT_TRUE(client.Register(Request(client, std::string(64, 'x'))).ok());
  const auto answer = client.Register(Request(client, std::string(65, 'x')));
  EXPECT_EQ(answer.reason(), v1::REQUEST_INVALID) << answer.text();
  EXPECT_EQ(answer.detail.limit(), 64u);
}

class RequestInFlightTest : public DaemonTest {
 protected:
  RequestInFlightTest() {
    Start({.fabric = "verbs", .devices = "devices=fake0;fake0.reg_delay_ms=700"});
    client_ = std::make_unique<RawClient>(dir());
    request_ = RequestFor(client_->Pass(memory_), memory_);
    request_.set_request_id("in flight");
  }
  // The first try, which takes its time, once it is known to run.
  std::future<Answer<v1::RegisterResponse>> Begin() {
    auto first = std::async(std::launch::async, [this] { return client_->Register(request_); });
    EXPECT_TRUE(WaitUntil(kPatience, [this] { return Look().regions == 1; }));  // Booked.
    return first;
  }

  const Memory memory_{kPage};
  std::unique_ptr<RawClient> client_;
  v1::RegisterRequest request_;

  void TearDown() override {
    client_ = nullptr;
    DaemonTest::TearDown();
  }
};

TEST_F(RequestInFlightTest, ARepeatOfARunningRequestJoinsIt) {
  auto first = Begin();
  auto second = std::async(std::launch::async, [this] { return client_->Register(request_); });
  auto third = client_->Register(request_);
  const auto one = first.get();
  const auto two = second.get();
  ASSERT_TRUE(one.ok() && two.ok() && third.ok());
  ExpectSameLease(two.response.leases(0), one.response.leases(0));
  ExpectSameLease(third.response.leases(0), one.response.leases(0));
  EXPECT_EQ(Look().regions, 1u);
  EXPECT_NE(Look().on_devices.find("mrs 1 "), std::string::npos) << Look().on_devices;
}

TEST_F(RequestInFlightTest, OtherParametersAreRefusedWhileItRuns) {
  auto first = Begin();
  auto other = request_;
  other.mutable_access()->set_preset(v1::Access::REG_READ);
  EXPECT_EQ(client_->Register(other).reason(), v1::REQUEST_ID_REUSED);
  EXPECT_TRUE(first.get().ok());
}

TEST_F(RequestInFlightTest, WhatRefusesTheFirstRefusesThoseThatJoinedIt) {
  daemon().Control("fail fake0 reg ENOSPC@1");
  auto first = Begin();
  const auto joined = client_->Register(request_);
  EXPECT_EQ(first.get().reason(), v1::DEVICE_LIMIT);
  EXPECT_EQ(joined.reason(), v1::DEVICE_LIMIT) << joined.text();
  EXPECT_TRUE(client_->Register(request_).ok()) << "a repeat after that runs anew";
}

TEST_F(RequestInFlightTest, ACutInMidFlightAndARepeatEndInOneRegion) {
  Http2 connection(dir());
  ASSERT_TRUE(connection.Call(1, kRegister, client_->token(), request_.SerializeAsString()));
  ASSERT_TRUE(WaitUntil(kPatience, [this] { return Look().regions == 1; }));
  connection.Close();
  EXPECT_TRUE(client_->Register(request_).ok());
  EXPECT_EQ(Look().regions, 1u);
}

}  // namespace
}  // namespace mrd::e2e
