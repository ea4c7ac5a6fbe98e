#include <gtest/gtest.h>

#include <thread>

#include "tests/broker/broker_fixture.h"

namespace mrd::broker {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

class RenewalTest : public BrokerTest {
 protected:
  RenewalTest() {
    link_ = std::make_shared<FakeLink>();
    session_ = Attach(kUid, link_);
    Pass(session_, 1);
  }

  RegisterSpec WithTtl(uint64_t offset, std::chrono::nanoseconds ttl) {
    RegisterSpec spec = Spec({Range(offset, 4096)});
    spec.ttl = ttl;
    return spec;
  }
  uint64_t RegisterFor(uint64_t offset, std::chrono::nanoseconds ttl) {
    const auto result = Register(session_, WithTtl(offset, ttl));
    EXPECT_TRUE(result.ok()) << result.status();
    return (**result)[0].id;
  }
  // As if so much time had passed; then until what lapsed by that has been told of.
  void Pass(milliseconds time) { broker_->EndLapsed(Expiries::Clock::now() + time); }
  using BrokerTest::Pass;
  std::vector<uint64_t> AwaitLapsed(size_t count) {
    std::vector<uint64_t> ids;
    for (int i = 0; i < 5000 && ids.size() < count; ++i) {
      std::this_thread::sleep_for(milliseconds(1));
      ids = Lapsed();
    }
    return ids;
  }
  std::vector<uint64_t> Lapsed() {
    std::vector<uint64_t> ids;
    MutexLock lock(link_->mutex);
    for (const Event& event : link_->events) {
      EXPECT_EQ(event.kind, v1::AttachEvent::LAPSED);
      ids.insert(ids.end(), event.lease_ids.begin(), event.lease_ids.end());
    }
    return ids;
  }

  std::shared_ptr<FakeLink> link_;
  SessionRef session_;
};

TEST_F(RenewalTest, ALeaseLapsesWithItsTtlAndTheSessionLearnsItAfterTheFence) {
  const uint64_t lease = RegisterFor(0, seconds(10));
  const uint64_t for_ever = RegisterFor(4096, seconds(0));
  Pass(milliseconds(9900));
  EXPECT_TRUE(Lapsed().empty());
  EXPECT_EQ(verbs_.live().mrs, 2);
  Pass(milliseconds(10100));
  EXPECT_EQ(AwaitLapsed(1), (std::vector<uint64_t>{lease}));
  EXPECT_EQ(verbs_.live().mrs, 1);
  EXPECT_EQ(broker_->books().Used(kUid).regions, 1u);
  EXPECT_EQ(ReasonOf(Deregister(session_, {lease})), v1::LEASE_UNKNOWN);
  EXPECT_TRUE(Deregister(session_, {for_ever}).ok());
}

TEST_F(RenewalTest, TheAnswerIsTheTimeThatRemainsWithinTheLimits) {
  const auto short_one = Register(session_, WithTtl(0, std::chrono::nanoseconds(1)));
  EXPECT_EQ((**short_one)[0].remaining, seconds(1));
  const auto long_one = Register(session_, WithTtl(4096, hours(24 * 366)));
  EXPECT_EQ((**long_one)[0].remaining, hours(24 * 365));
  const auto session_long = Register(session_, WithTtl(8192, seconds(0)));
  EXPECT_FALSE((**session_long)[0].remaining);
  const auto page = broker_->Leases(session_, 0, 10);
  ASSERT_EQ(page.leases.size(), 3u);
  EXPECT_LT(*page.leases[1].second.remaining, hours(24 * 365)) << "it runs";
  EXPECT_GT(*page.leases[1].second.remaining, hours(24 * 364));
}

TEST_F(RenewalTest, ARepeatedRequestIsToldWhatRemainsNow) {
  RegisterSpec spec = WithTtl(0, hours(1));
  spec.request_id = "once";
  ASSERT_TRUE(Register(session_, spec).ok());
  std::this_thread::sleep_for(milliseconds(5));
  const auto again = Register(session_, spec);
  ASSERT_TRUE(again.ok());
  EXPECT_LT((**again)[0].remaining, hours(1));
  ASSERT_TRUE(Deregister(session_, {(**again)[0].id}).ok());
  EXPECT_EQ((**Register(session_, spec))[0].remaining, seconds(0));
}

TEST_F(RenewalTest, OneCallRenewsAll) {
  for (uint64_t i = 0; i < 3; ++i) RegisterFor(i * 4096, seconds(1));
  RegisterFor(3 * 4096, seconds(0));
  std::this_thread::sleep_for(milliseconds(200));
  const auto renewed = broker_->Renew(*session_, {});
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  EXPECT_EQ(renewed->leases, 3u);
  EXPECT_EQ(renewed->shortest_ttl, seconds(1));
  Pass(milliseconds(900));  // 1,100 after they were made.
  EXPECT_EQ(verbs_.live().mrs, 4);
  Pass(milliseconds(1100));
  EXPECT_EQ(AwaitLapsed(3).size(), 3u);
  EXPECT_EQ(broker_->Renew(*session_, {})->leases, 0u);
  EXPECT_EQ(verbs_.live().mrs, 1);
}

TEST_F(RenewalTest, RenewsThoseNamedOrNone) {
  const uint64_t first = RegisterFor(0, seconds(1));
  const uint64_t second = RegisterFor(4096, seconds(1));
  const auto other = Attach();
  EXPECT_EQ(ReasonOf(broker_->Renew(*other, {first}).status()), v1::LEASE_UNKNOWN);
  EXPECT_EQ(ReasonOf(broker_->Renew(*session_, {first, 4711}).status()), v1::LEASE_UNKNOWN);
  std::this_thread::sleep_for(milliseconds(200));
  ASSERT_TRUE(broker_->Renew(*session_, {second}).ok());
  Pass(milliseconds(900));
  EXPECT_EQ(AwaitLapsed(1), (std::vector<uint64_t>{first}));
  EXPECT_EQ(ReasonOf(broker_->Renew(*session_, std::vector<uint64_t>(10001, second)).status()),
            v1::INVALID_LENGTH);
}

TEST_F(RenewalTest, WhatWillNotEndIsNotToldOfAndTriedAgain) {
  const uint64_t lease = RegisterFor(0, seconds(1));
  verbs_.Fail("fake0", "dereg", "EBUSY@1");
  Pass(milliseconds(1100));
  for (int i = 0; i < 5000 && broker_->Leases(session_, 0, 10).leases.empty(); ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(Lapsed().empty());
  EXPECT_EQ(verbs_.live().mrs, 1);
  Pass(milliseconds(1100));
  EXPECT_EQ(AwaitLapsed(1), (std::vector<uint64_t>{lease}));
  EXPECT_EQ(verbs_.live().mrs, 0);
}

TEST_F(RenewalTest, ManyThatLapseAtOnceTakeSeveralTurns) {
  RegisterSpec spec = Spec({});
  for (uint64_t i = 0; i < 2500; ++i) spec.ranges.push_back(Range(i % 256 * 4096, 4096));
  spec.ttl = seconds(1);
  ASSERT_TRUE(Register(session_, spec).ok());
  const auto later = Expiries::Clock::now() + seconds(2);
  int turns = 0;
  while (const auto next = broker_->EndLapsed(later)) {
    EXPECT_LE(*next, later);
    ASSERT_LT(++turns, 10);
  }
  EXPECT_GE(turns, 2);
  EXPECT_EQ(AwaitLapsed(2500).size(), 2500u);
  EXPECT_EQ(verbs_.live().mrs, 0);
}

TEST_F(RenewalTest, TheClockWakesForWhatLapsesFirst) {
  int woken = 0;
  broker_->lease_clock().SetWake([&] { ++woken; });
  RegisterFor(0, hours(2));
  RegisterFor(4096, hours(1));
  RegisterFor(8192, hours(3));
  EXPECT_EQ(woken, 2);
  ASSERT_TRUE(broker_->lease_clock().next());
  EndAndWait(session_);
  EXPECT_FALSE(broker_->lease_clock().next()) << "an ended session is watched no more";
}

TEST_F(RenewalTest, LapsesRaceWithRenewalsDeregistrationsAndTheEnd) {
  std::vector<uint64_t> leases;
  for (uint64_t i = 0; i < 256; ++i) leases.push_back(RegisterFor(i * 4096, seconds(1)));
  std::thread renews([&] {
    for (int i = 0; i < 200; ++i) broker_->Renew(*session_, {}).IgnoreError();
  });
  std::thread ends([&] {
    for (const uint64_t id : leases) Deregister(session_, {id}).IgnoreError();
  });
  for (int i = 0; i < 20; ++i) Pass(milliseconds(1100));
  renews.join();
  ends.join();
  Pass(milliseconds(2100));
  EndAndWait(session_);
  EXPECT_EQ(verbs_.live().mrs, 0);
}

}  // namespace
}  // namespace mrd::broker
