// What is promised to survive the daemon does, and a full store or ledger is no way to stop others.
#include "tests/broker/adoption_fixture.h"

namespace mrd::broker {
namespace {

using namespace std::chrono_literals;

class SurvivesTest : public AdoptionTest {
 protected:
  SurvivesTest() : AdoptionTest("devices=fake0;fake0.address=10.99.0.1") {
    kernel_.pds.clear();  // Of before there is nothing.
  }

  template <typename Start>
  std::future<absl::StatusOr<EndpointView>> Async(Start start) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<EndpointView>>>();
    start([promise](auto result) { promise->set_value(std::move(result)); });
    return promise->get_future();
  }
  static ConnectionWish Wish() {
    return {.private_data = "", .deadline = std::chrono::steady_clock::now() + 20s, .wanted = {}};
  }
  // Whether a new connection of the session with itself is said to survive, at its connecting end.
  bool NewConnectionSurvives(const SessionRef& session) {
    const auto listener = Async([&](EndpointDone done) {
                            endpoints_.Listen(session, {"10.99.0.1", 0, 16, ""}, std::move(done));
                          }).get();
    EXPECT_TRUE(listener.ok()) << listener.status();
    auto accepted = Async([&](EndpointDone done) {
      endpoints_.Accept(session, listener->id, Wish(), std::move(done));
    });
    const auto connected = Async([&](EndpointDone done) {
                             endpoints_.Connect(session, "10.99.0.1", listener->info.local_port, "",
                                                Wish(), std::move(done));
                           }).get();
    EXPECT_TRUE(accepted.get().ok());
    EXPECT_TRUE(connected.ok()) << connected.status();
    return connected.ok() && connected->survives;
  }

  Endpoints endpoints_{*broker_};
};

TEST_F(SurvivesTest, AConnectionSurvivesWhereItsDeviceAndItsSessionDo) {
  ASSERT_TRUE(Adopt().ok());
  store_.SetLimit(100);
  const auto session = Attach();
  EXPECT_FALSE(NewConnectionSurvives(session)) << "the device's opening is not kept";
  verbs_.SetKeepable(true);
  EXPECT_TRUE(NewConnectionSurvives(session)) << "it is tried again";
  {
    MutexLock lock(session->mutex);
    session->record.Erase();
  }
  EXPECT_FALSE(NewConnectionSurvives(session)) << "the next run does not know its session";
}

TEST_F(SurvivesTest, ConnectionsLeaveRoomForDevicesAndADeviceIsTriedAgain) {
  verbs_.SetKeepable(true);
  ASSERT_TRUE(Adopt().ok());
  std::vector<ledger::StoredFd> connections;
  for (auto kept = ledger_->Keep(0); kept.ok(); kept = ledger_->Keep(0)) {
    connections.push_back(*std::move(kept));
  }
  EXPECT_LT(store_.used(), store_.limit());
  const auto first = Attach(), second = Attach();
  for (const auto& session : {first, second}) Pass(session, 1);
  const size_t limit = store_.limit();
  store_.SetLimit(store_.used());
  EXPECT_TRUE(Register(first, Spec({Range(0, 4096)})).ok());
  EXPECT_EQ(Records(Kind::kDevice), 0u) << "no place at all";
  store_.SetLimit(limit);
  EXPECT_TRUE(Register(second, Spec({Range(0, 4096)})).ok());
  EXPECT_EQ(Records(Kind::kDevice), 1u);
}

TEST_F(SurvivesTest, AFullLedgerRefusesAMembershipWithAReason) {
  ASSERT_TRUE(Adopt().ok());
  const auto session = Attach();
  ASSERT_EQ(fcntl(ledger_->slots().fd(), F_ADD_SEALS, F_SEAL_GROW), 0);
  std::vector<ledger::Record> records;
  pb::Membership some;
  some.set_name(std::string(64, 'x'));
  for (auto put = ledger_->Put(some); put.ok(); put = ledger_->Put(some)) {
    records.push_back(*std::move(put));
  }
  const auto refused = broker_->OpenDomain(*session, {.name = "job", .create = true, .mode = 0600});
  EXPECT_EQ(ReasonOf(refused.status()), v1::BUSY) << refused.status();
  EXPECT_TRUE(broker_->Domains("", 10).empty()) << "it has ended";
}

}  // namespace
}  // namespace mrd::broker
