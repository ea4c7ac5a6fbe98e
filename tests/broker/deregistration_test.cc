#include <gtest/gtest.h>

#include <thread>

#include "tests/broker/broker_fixture.h"

namespace mrd::broker {
namespace {

class DeregistrationTest : public BrokerTest {
 protected:
  uint64_t RegisterOne(const SessionRef& session, uint64_t offset) {
    const auto result = Register(session, Spec({Range(offset, 4096)}));
    EXPECT_TRUE(result.ok()) << result.status();
    return (**result)[0].id;
  }
};

TEST_F(DeregistrationTest, EndsAllOrNone) {
  const auto session = Attach();
  Pass(session, 1);
  const uint64_t a = RegisterOne(session, 0);
  const uint64_t b = RegisterOne(session, 4096);
  EXPECT_EQ(ReasonOf(Deregister(session, {a, 4711, b})), v1::LEASE_UNKNOWN);
  EXPECT_EQ(ReasonOf(Deregister(session, {a, a})), v1::LEASE_UNKNOWN);
  EXPECT_EQ(ReasonOf(Deregister(session, {a, 0})), v1::LEASE_UNKNOWN);
  EXPECT_EQ(verbs_.live().mrs, 2);
  EXPECT_TRUE(Deregister(session, {a, b}).ok());
  EXPECT_EQ(verbs_.live().mrs, 0);
  EXPECT_EQ(broker_->books().Used(kUid).regions, 0u);
}

TEST_F(DeregistrationTest, KnowsNoLeaseOfAnotherSession) {
  const auto owner = Attach();
  const auto other = Attach();
  Pass(owner, 1);
  const uint64_t lease = RegisterOne(owner, 0);
  EXPECT_EQ(ReasonOf(Deregister(other, {lease})), v1::LEASE_UNKNOWN);
  EXPECT_EQ(verbs_.live().mrs, 1);
}

TEST_F(DeregistrationTest, ALeaseThatEndedIsUnknownAndTheNewOneUntouched) {
  const auto session = Attach();
  Pass(session, 1);
  const uint64_t old = RegisterOne(session, 0);
  ASSERT_TRUE(Deregister(session, {old}).ok());
  const uint64_t fresh = RegisterOne(session, 0);
  EXPECT_NE(old, fresh);
  EXPECT_EQ(ReasonOf(Deregister(session, {old})), v1::LEASE_UNKNOWN);
  EXPECT_EQ(verbs_.live().mrs, 1);
}

TEST_F(DeregistrationTest, RefusesNoIdsAndTooMany) {
  const auto session = Attach();
  EXPECT_EQ(ReasonOf(Deregister(session, {})), v1::INVALID_LENGTH);
  EXPECT_EQ(ReasonOf(Deregister(session, std::vector<uint64_t>(10001, 1))), v1::INVALID_LENGTH);
}

TEST_F(DeregistrationTest, ARegionThatWillNotEndStaysALease) {
  const auto session = Attach();
  Pass(session, 1);
  const uint64_t lease = RegisterOne(session, 0);
  verbs_.Fail("fake0", "dereg", "EBUSY@1");
  const auto refusal = Deregister(session, {lease});
  EXPECT_EQ(ReasonOf(refusal), v1::DEVICE_ERROR);
  EXPECT_EQ(DetailOf(refusal)->errno_name(), "EBUSY");
  EXPECT_EQ(broker_->books().Used(kUid).regions, 1u);
  EXPECT_TRUE(Deregister(session, {lease}).ok());
}

TEST_F(DeregistrationTest, ListsLeasesPageByPage) {
  const auto session = Attach();
  Pass(session, 1);
  for (uint64_t i = 0; i < 5; ++i) RegisterOne(session, i * 4096);
  uint64_t after = 0;
  size_t seen = 0;
  do {
    const auto page = broker_->Leases(session, after, 2);
    EXPECT_LE(page.leases.size(), 2u);
    for (const auto& [session_id, view] : page.leases) {
      EXPECT_GT(view.id, after);
      after = view.id;
      ++seen;
    }
    if (page.next == 0) break;
    EXPECT_EQ(page.next, after);
  } while (true);
  EXPECT_EQ(seen, 5u);
}

class SlowDeregistrationTest : public BrokerTest {
 protected:
  SlowDeregistrationTest() : BrokerTest("devices=fake0,fake1;fake0.dereg_delay_ms=200") {}
};

// Else a client whose connection broke repeats the call, is told that the lease has ended, and
// gives pages to something else which a peer still reaches.
TEST_F(SlowDeregistrationTest, ALeaseThatIsBeingEndedHasNotEnded) {
  const auto session = Attach();
  Pass(session, 1);
  const auto made = Register(session, Spec({Range(0, 4096)}));
  ASSERT_TRUE(made.ok()) << made.status();
  const uint64_t lease = (**made)[0].id;
  std::thread first([&] { EXPECT_TRUE(Deregister(session, {lease}).ok()); });
  while (!broker_->Leases(session, 0, 1).leases.empty()) std::this_thread::yield();
  for (;;) {
    const bool reached = verbs_.live().mrs > 0;
    const auto reason = ReasonOf(Deregister(session, {lease}));
    const auto renewed = ReasonOf(broker_->Renew(*session, {lease}).status());
    if (reason == v1::LEASE_UNKNOWN) {
      EXPECT_FALSE(verbs_.live().mrs > 0);
      break;
    }
    ASSERT_EQ(reason, v1::BUSY);
    ASSERT_TRUE(renewed == v1::BUSY || renewed == v1::LEASE_UNKNOWN);
    if (reached) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  first.join();
}

TEST_F(SlowDeregistrationTest, WhatIsLeftOfALeaseShowsTheKeysThatAreLeft) {
  const auto session = Attach();
  Pass(session, 1);
  auto spec = Spec({Range(0, 4096)});
  spec.devices = {"fake0", "fake1"};
  const auto made = Register(session, spec);
  ASSERT_TRUE(made.ok()) << made.status();
  verbs_.Fail("fake1", "dereg", "EBUSY@1");
  EXPECT_FALSE(Deregister(session, {(**made)[0].id}).ok());
  const auto left = broker_->Leases(session, 0, 1).leases;
  ASSERT_EQ(left.size(), 1u);
  ASSERT_EQ(left[0].second.keys.size(), 1u);
  EXPECT_EQ(left[0].second.keys[0].device->name, "fake1");
}

}  // namespace
}  // namespace mrd::broker
