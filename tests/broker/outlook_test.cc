#include "daemon/broker/outlook.h"

#include "tests/broker/adoption_fixture.h"

namespace mrd::broker {
namespace {

class OutlookTest : public AdoptionTest {
 protected:
  // "sessions regions endpoints", each "that go on/that end".
  std::string Look(const std::vector<SessionRef>& sessions) {
    const Outlook outlook = LookAhead(*broker_, sessions);
    std::string text;
    for (const Outlook::Fate& fate : {outlook.sessions, outlook.regions, outlook.endpoints}) {
      text += std::to_string(fate.go_on) + "/" + std::to_string(fate.end) + " ";
    }
    return text;
  }
};

TEST_F(OutlookTest, WithoutALedgerAllEnds) {
  const SessionRef session = Attach();
  Pass(session, 1);
  ASSERT_TRUE(Register(session, Spec({Range(0, 4096), Range(0, 4096)})).ok());
  EXPECT_EQ(Look({session}), "0/1 0/2 0/0 ");
  EXPECT_EQ(Look({}), "0/0 0/0 0/0 ");
}

TEST_F(OutlookTest, WhatIsWrittenDownGoesOn) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  Put(Kind::kEndpoint, EndpointRecord(71, 20, "f2"));
  ASSERT_TRUE(Adopt().ok());
  const auto session = Resume();
  ASSERT_TRUE(session.ok());
  EXPECT_EQ(Look({*session}), "1/0 1/0 1/0 ");
  const Outlook outlook = LookAhead(*broker_, {*session});
  ASSERT_EQ(outlook.old_generations.size(), 1u);
  EXPECT_EQ(outlook.old_generations[0].device->name, "fake0");
  EXPECT_EQ(outlook.old_generations[0].regions, 1u);
  EXPECT_TRUE(LookAhead(*broker_, {}).old_generations.empty());

  Pass(*session, 1);
  RegisterSpec on_demand = Spec({Range(0, 4096)});
  on_demand.newest_only = true;
  on_demand.access |= fabric::Bit(v1::ON_DEMAND);
  ASSERT_TRUE(Register(*session, on_demand).ok());
  EXPECT_EQ(Look({*session}), "1/0 1/1 1/0 ") << "it needs this process's memory map";
}

// As where the store was full when it was made.
TEST_F(OutlookTest, AnEndpointThatIsNotWrittenDownEnds) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kEndpoint, EndpointRecord(71, 20, "f2"));
  ASSERT_TRUE(Adopt().ok());
  const SessionRef session = broker_->SessionById(3);
  {
    MutexLock lock(session->mutex);
    session->endpoints.at(71)->record.Erase();
  }
  EXPECT_EQ(Look({session}), "1/0 0/0 0/1 ");
}

}  // namespace
}  // namespace mrd::broker
