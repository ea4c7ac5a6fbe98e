#include <gtest/gtest.h>

#include "tests/broker/broker_fixture.h"

namespace mrd::broker {
namespace {

class SessionTest : public BrokerTest {};

TEST_F(SessionTest, IsFoundByItsTokenAlone) {
  const auto session = Attach();
  EXPECT_EQ(*broker_->Find(session->token), session);
  std::string altered = session->token;
  altered[3] ^= 1;
  EXPECT_EQ(ReasonOf(broker_->Find(altered).status()), v1::SESSION_UNKNOWN);
  EXPECT_EQ(ReasonOf(broker_->Find("").status()), v1::SESSION_UNKNOWN);
}

TEST_F(SessionTest, ItsEndFreesEverythingAndHangsUp) {
  const auto link = std::make_shared<FakeLink>();
  const auto session = Attach(kUid, link);
  Pass(session, 1, 64 << 20);
  std::vector<RangeSpec> ranges;
  for (uint64_t i = 0; i < 2000; ++i) ranges.push_back(Range(i * 4096, 4096));
  ASSERT_TRUE(Register(session, Spec(ranges)).ok());
  EXPECT_EQ(verbs_.live().mrs, 2000);
  EndAndWait(session);
  EXPECT_EQ(verbs_.live().mrs, 0);
  EXPECT_EQ(verbs_.live().pds, 0);
  EXPECT_EQ(broker_->books().Total(), Amounts{});
  EXPECT_EQ(memory::CountMappings(), 0u);
  EXPECT_TRUE(link->hung_up);
  EXPECT_EQ(ReasonOf(broker_->Find(session->token).status()), v1::SESSION_UNKNOWN);
  EXPECT_EQ(ReasonOf(Register(session, Spec({Range(0, 1)})).status()), v1::SESSION_UNKNOWN);
  EXPECT_EQ(ReasonOf(Deregister(session, {1})), v1::SESSION_UNKNOWN);
}

TEST_F(SessionTest, AnIdThatIsZeroOrInUseEndsIt) {
  const auto session = Attach();
  EXPECT_FALSE(broker_->AddBuffer(*session, 0, memory::MakeMemfd(4096)));
  EXPECT_TRUE(broker_->AddBuffer(*session, 1, memory::MakeMemfd(4096)));
  EXPECT_FALSE(broker_->AddBuffer(*session, 1, memory::MakeMemfd(4096)));
}

TEST_F(SessionTest, ReleasesAllNamedBuffersOrNone) {
  const auto session = Attach();
  Pass(session, 1);
  Pass(session, 2);
  EXPECT_EQ(ReasonOf(Release(session, {1, 3})), v1::BUFFER_UNKNOWN);
  EXPECT_EQ(session->View().buffers, 2u);
  EXPECT_TRUE(Release(session, {1, 2}).ok());
  EXPECT_EQ(session->View().buffers, 0u);
}

TEST_F(SessionTest, ARefusedDescriptorTellsItsReasonToTheCallThatNamesIt) {
  const auto session = Attach();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd writer(ends[1]);
  EXPECT_TRUE(broker_->AddBuffer(*session, 1, UniqueFd(ends[0])));
  EXPECT_EQ(ReasonOf(Register(session, Spec({Range(0, 1)})).status()), v1::NOT_SHARED_MEMORY);
}

TEST_F(SessionTest, SessionsAreRefusedOnceTheDaemonIsEnding) {
  const auto link = std::make_shared<FakeLink>();
  Attach(kUid, link);
  std::promise<void> drained;
  broker_->Drain([&] { drained.set_value(); });
  drained.get_future().wait();
  EXPECT_EQ(link->events.back().kind, v1::AttachEvent::DRAINING);
  const auto late = broker_->Attach({.pid = 1, .comm = "", .death = ""}, "", link);
  EXPECT_EQ(ReasonOf(late.status()), v1::DRAINING);
}

TEST_F(SessionTest, EndsAndRegistrationsMayRace) {
  for (int round = 0; round < 50; ++round) {
    const auto session = Attach();
    Pass(session, 1);
    std::vector<std::future<RegisterResult>> results;
    std::thread registering([&] {
      for (uint64_t i = 0; i < 20; ++i) {
        results.push_back(StartRegister(session, Spec({Range(i * 4096, 4096)})));
      }
    });
    EndAndWait(session);
    registering.join();
    for (auto& result : results) {
      const auto got = result.get();
      EXPECT_TRUE(got.ok() || ReasonOf(got.status()) == v1::SESSION_UNKNOWN ||
                  ReasonOf(got.status()) == v1::BUFFER_UNKNOWN)
          << got.status();
    }
    EXPECT_EQ(verbs_.live().mrs, 0);
  }
}

}  // namespace
}  // namespace mrd::broker
