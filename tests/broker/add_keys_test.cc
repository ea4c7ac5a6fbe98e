#include "daemon/broker/add_keys.h"

#include "tests/broker/adoption_fixture.h"

namespace mrd::broker {
namespace {

// Pinning takes a while: something else happens meanwhile.
class SlowAddKeysTest : public AdoptionTest {
 protected:
  SlowAddKeysTest() : AdoptionTest("devices=fake0;fake0.reg_delay_ms=200") {}

  std::future<RegisterResult> StartAdd(const SessionRef& session, std::vector<LeaseBuffer> leases) {
    auto promise = std::make_shared<std::promise<RegisterResult>>();
    AddKeys::Start(*broker_, session, std::move(leases),
                   [promise](RegisterResult result) { promise->set_value(std::move(result)); });
    return promise->get_future();
  }
};

TEST_F(SlowAddKeysTest, ARepeatBesideTheFirstCallAddsNothing) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  ASSERT_TRUE(Adopt().ok());
  const auto session = Resume();
  ASSERT_TRUE(session.ok());
  Pass(*session, 1);
  auto first = StartAdd(*session, {{70, 1}});
  auto repeat = StartAdd(*session, {{70, 1}});
  for (auto* const each : {&first, &repeat}) {
    const auto added = each->get();
    ASSERT_TRUE(added.ok()) << added.status();
    EXPECT_EQ((**added)[0].keys.size(), 2u);
  }
  EXPECT_EQ(verbs_.live().mrs, 1);
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 8192u);
}

TEST_F(SlowAddKeysTest, ADomainThatIsClosedMeanwhileIsNoPrivateOne) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  pb::Membership member;
  member.set_session_id(3);
  member.set_domain_id(500);
  member.set_name("shared");
  member.set_owner(kUid);
  member.set_mode(0600);
  Put(Kind::kMembership, member);
  pb::Lease lease = LeaseRecord(70, 5);
  lease.set_domain("shared");
  lease.set_domain_id(500);
  Put(Kind::kLease, lease);
  ASSERT_TRUE(Adopt().ok());
  const auto session = Resume();
  ASSERT_TRUE(session.ok());
  Pass(*session, 1);
  ASSERT_TRUE(Register(*session, Spec({Range(8192, 4096)})).ok());
  const auto of_session = (*session)->domains.Kept("fake0");
  ASSERT_TRUE(of_session);

  auto added = StartAdd(*session, {{70, 1}});
  while (verbs_.live().pds < 2) std::this_thread::yield();
  std::promise<absl::Status> closed;
  broker_->CloseDomain(*session, "shared",
                       [&closed](absl::Status status) { closed.set_value(std::move(status)); });
  EXPECT_TRUE(closed.get_future().get().ok());
  const auto answer = added.get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ((**answer)[0].keys.size(), 2u);
  EXPECT_EQ((*session)->domains.Kept("fake0")->domain, of_session->domain);
}

}  // namespace
}  // namespace mrd::broker
