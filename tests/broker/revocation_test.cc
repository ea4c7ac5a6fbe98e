// What the operator does: leases and sessions revoked, the daemon drained.
#include <gtest/gtest.h>

#include <thread>

#include "tests/broker/broker_fixture.h"

namespace mrd::broker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class OperatorTest : public BrokerTest {
 protected:
  explicit OperatorTest(const std::string& verbs = "devices=fake0,fake1") : BrokerTest(verbs) {
    auto admin = broker_->Attach({.pid = 1, .uid = 0, .admin = true, .comm = "", .death = ""},
                                 "admin", std::make_shared<FakeLink>());
    EXPECT_TRUE(admin.ok()) << admin.status();
    admin_ = *admin;
    link_ = std::make_shared<FakeLink>();
    session_ = Attach(kUid, link_);
    Pass(session_, 1);
  }

  uint64_t RegisterOne(const SessionRef& session, uint64_t offset = 0) {
    const auto result = Register(session, Spec({Range(offset, 4096)}));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? (**result)[0].id : 0;
  }
  absl::StatusOr<uint64_t> Revoke(std::vector<uint64_t> ids, const std::string& reason = "why") {
    std::promise<absl::StatusOr<uint64_t>> done;
    broker_->RevokeLeases(admin_, std::move(ids), reason,
                          [&](absl::StatusOr<uint64_t> result) { done.set_value(result); });
    return done.get_future().get();
  }
  std::vector<Event> Events(const std::shared_ptr<FakeLink>& link) {
    MutexLock lock(link->mutex);
    return link->events;
  }

  SessionRef admin_;
  std::shared_ptr<FakeLink> link_;
  SessionRef session_;
};

TEST_F(OperatorTest, RevokedLeasesHaveEndedAndTheirSessionsAreToldWhy) {
  auto other_link = std::make_shared<FakeLink>();
  const SessionRef other = Attach(kUid + 1, other_link);
  Pass(other, 1);
  const uint64_t first = RegisterOne(session_);
  const uint64_t second = RegisterOne(session_, 4096);
  const uint64_t kept = RegisterOne(session_, 8192);
  const uint64_t others = RegisterOne(other);
  const auto revoked = Revoke({others, second, first, first});
  ASSERT_TRUE(revoked.ok()) << revoked.status();
  EXPECT_EQ(*revoked, 3u);
  EXPECT_EQ(broker_->Leases(nullptr, 0, 10).leases.size(), 1u);
  EXPECT_EQ(broker_->Count().booked.regions, 1u);
  ASSERT_EQ(Events(link_).size(), 1u);
  const Event told = Events(link_)[0];
  EXPECT_EQ(told.kind, v1::AttachEvent::REVOKED);
  EXPECT_EQ(told.lease_ids, (std::vector<uint64_t>{first, second}));
  EXPECT_NE(told.message.find("why"), std::string::npos);
  ASSERT_EQ(Events(other_link).size(), 1u);
  EXPECT_EQ(Events(other_link)[0].lease_ids, std::vector<uint64_t>{others});
  EXPECT_TRUE(Deregister(session_, {kept}).ok());
}

TEST_F(OperatorTest, WhereOneIdIsUnknownNoneIsRevoked) {
  const uint64_t lease = RegisterOne(session_);
  EXPECT_EQ(ReasonOf(Revoke({lease, lease + 1000}).status()), v1::LEASE_UNKNOWN);
  EXPECT_EQ(ReasonOf(Revoke({}).status()), v1::INVALID_LENGTH);
  EXPECT_EQ(ReasonOf(Revoke(std::vector<uint64_t>(10001, lease)).status()), v1::INVALID_LENGTH);
  EXPECT_EQ(broker_->Count().booked.regions, 1u);
  EXPECT_TRUE(Events(link_).empty());
}

TEST_F(OperatorTest, ARevokedSessionIsToldAndHoldsNothing) {
  RegisterOne(session_);
  ASSERT_TRUE(broker_->RevokeSession(admin_, session_->id, "too much").ok());
  EXPECT_FALSE(broker_->Find(session_->token).ok()) << "at once";
  while (broker_->SessionById(session_->id)) std::this_thread::yield();
  EXPECT_TRUE(link_->hung_up);
  ASSERT_EQ(Events(link_).size(), 1u);
  EXPECT_EQ(Events(link_)[0].kind, v1::AttachEvent::REVOKED);
  EXPECT_NE(Events(link_)[0].message.find("too much"), std::string::npos);
  EXPECT_EQ(ReasonOf(broker_->RevokeSession(admin_, session_->id, "")), v1::NO_SUCH_SESSION);
  EXPECT_EQ(ReasonOf(broker_->RevokeSession(admin_, admin_->id, "")), v1::REQUEST_INVALID);
}

TEST_F(OperatorTest, DrainedItLetsNothingNewInAndKeepsWhatStands) {
  RegisterSpec repeated = Spec({Range(0, 4096)});
  repeated.request_id = "once";
  const auto before = Register(session_, repeated);
  ASSERT_TRUE(before.ok());
  broker_->StartDrain(*admin_, "new kernel", std::nullopt);
  EXPECT_EQ(ReasonOf(Register(session_, Spec({Range(4096, 4096)})).status()), v1::DRAINING);
  const auto repeat = Register(session_, repeated);
  ASSERT_TRUE(repeat.ok()) << "the answer to what was done before: " << repeat.status();
  EXPECT_EQ((**repeat)[0].id, (**before)[0].id);
  auto refused = broker_->Attach({.pid = 1, .uid = kUid, .comm = "", .death = ""}, "late",
                                 std::make_shared<FakeLink>());
  EXPECT_EQ(ReasonOf(refused.status()), v1::DRAINING);
  EXPECT_NE(std::string(refused.status().message()).find("new kernel"), std::string::npos);
  EXPECT_TRUE(broker_->Renew(*session_, {}).ok());
  const DrainView now = broker_->DrainNow();
  ASSERT_TRUE(now.drained);
  EXPECT_EQ(now.sessions_left, 1u);
  ASSERT_EQ(Events(link_).size(), 1u);
  EXPECT_EQ(Events(link_)[0].kind, v1::AttachEvent::DRAINING);
  EXPECT_EQ(Events(link_)[0].cause, v1::AttachEvent::CAUSE_UNSPECIFIED) << "it goes on";

  broker_->EndOverdue(DrainSwitch::Clock::now() + std::chrono::hours(1000));
  EXPECT_TRUE(broker_->SessionById(session_->id)) << "there is no deadline";
  broker_->StopDrain(*admin_);
  EXPECT_FALSE(broker_->DrainNow().drained);
  EXPECT_TRUE(Register(session_, Spec({Range(4096, 4096)})).ok());
}

TEST_F(OperatorTest, AnAdminIsLetInWhileItIsDrained) {
  broker_->StartDrain(*admin_, "", std::nullopt);
  const auto another = broker_->Attach({.pid = 1, .uid = 0, .admin = true, .comm = "", .death = ""},
                                       "admin", std::make_shared<FakeLink>());
  EXPECT_TRUE(another.ok()) << another.status();
}

TEST_F(OperatorTest, AfterTheDeadlineTheSessionsThatAreLeftEnd) {
  RegisterOne(session_);
  broker_->StartDrain(*admin_, "", seconds(60));
  broker_->EndOverdue(DrainSwitch::Clock::now() + seconds(59));
  EXPECT_TRUE(broker_->Find(session_->token).ok());
  broker_->EndOverdue(DrainSwitch::Clock::now() + seconds(61));
  while (broker_->SessionById(session_->id)) std::this_thread::yield();
  EXPECT_TRUE(link_->hung_up);
  EXPECT_TRUE(broker_->Find(admin_->token).ok()) << "but for admins";
  EXPECT_TRUE(broker_->DrainNow().drained) << "until it is taken back";
}

TEST_F(OperatorTest, UnclaimedAreBuffersThatNoRegistrationHasNamed) {
  EXPECT_EQ(session_->View().unclaimed, 1u);
  Pass(session_, 2);
  EXPECT_EQ(session_->View().unclaimed, 2u);
  RegisterOne(session_);
  EXPECT_EQ(session_->View().unclaimed, 1u);
  EXPECT_EQ(session_->View().buffers, 2u);
}

class BusyOperatorTest : public OperatorTest {
 protected:
  BusyOperatorTest() : OperatorTest("devices=fake0,fake1;fake1.reg_delay_ms=1000") {}
};

// Nor is a lapse, nor the end of a session.
TEST_F(BusyOperatorTest, ARevocationDoesNotWaitForWhatItsHolderIsDoing) {
  const uint64_t lease = RegisterOne(session_);
  std::vector<std::future<RegisterResult>> pins;
  for (int i = 0; i < 8; ++i) {
    pins.push_back(StartRegister(session_, Spec({Range(0, 1 << 20)}, "fake1")));
    const SessionRef other = Attach();
    Pass(other, 1);
    pins.push_back(StartRegister(other, Spec({Range(0, 1 << 20)}, "fake1")));
  }
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(Revoke({lease}).ok());
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_LT(took, milliseconds(500));
  for (auto& pin : pins) EXPECT_TRUE(pin.get().ok());
}

}  // namespace
}  // namespace mrd::broker
