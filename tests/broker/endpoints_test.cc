#include <gtest/gtest.h>

#include "tests/broker/broker_fixture.h"

namespace mrd::broker {
namespace {

using namespace std::chrono_literals;

class EndpointsTest : public BrokerTest {
 protected:
  explicit EndpointsTest(const std::string& verbs = "")
      : BrokerTest("devices=fake0;fake0.address=10.99.0.1" + verbs) {}

  using Result = absl::StatusOr<EndpointView>;

  template <typename Start>
  std::future<Result> Async(Start start) {
    auto promise = std::make_shared<std::promise<Result>>();
    start([promise](Result result) { promise->set_value(std::move(result)); });
    return promise->get_future();
  }
  Result Listen(const SessionRef& session, uint32_t port = 0) {
    return Async([&](EndpointDone done) {
             endpoints_.Listen(session, {"10.99.0.1", port, 16, ""}, std::move(done));
           })
        .get();
  }
  std::future<Result> Accept(const SessionRef& session, uint64_t listener,
                             std::chrono::milliseconds wait = 5s) {
    return Async([&](EndpointDone done) {
      endpoints_.Accept(session, listener,
                        {.private_data = "keys",
                         .deadline = std::chrono::steady_clock::now() + wait,
                         .wanted = {}},
                        std::move(done));
    });
  }
  std::future<Result> Connect(const SessionRef& session, uint32_t port,
                              std::chrono::milliseconds wait = 5s) {
    return Async([&](EndpointDone done) {
      endpoints_.Connect(session, "10.99.0.1", port, "",
                         {.private_data = "hello",
                          .deadline = std::chrono::steady_clock::now() + wait,
                          .wanted = {}},
                         std::move(done));
    });
  }
  absl::Status Disconnect(const SessionRef& session, uint64_t id) {
    std::promise<absl::Status> done;
    endpoints_.Disconnect(session, id,
                          [&](absl::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }

  Endpoints endpoints_{*broker_};
};

TEST_F(EndpointsTest, TwoSessionsConnect) {
  const auto link = std::make_shared<FakeLink>();
  const auto server = Attach(kUid, link);
  const auto client = Attach();
  const auto listener = Listen(server);
  ASSERT_TRUE(listener.ok()) << listener.status();
  auto accepted = Accept(server, listener->id);
  auto connected = Connect(client, listener->info.local_port);
  const auto here = accepted.get();
  const auto there = connected.get();
  ASSERT_TRUE(here.ok()) << here.status();
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_EQ(here->private_data.substr(0, 5), "hello");
  EXPECT_EQ(there->private_data.substr(0, 4), "keys");
  EXPECT_EQ(broker_->books().Used(kUid).endpoints, 3u);
  EXPECT_TRUE(Disconnect(client, there->id).ok());
  for (bool told = false; !told; std::this_thread::yield()) {
    MutexLock lock(link->mutex);
    told = !link->events.empty();
  }
  EXPECT_EQ(link->events[0].kind, v1::AttachEvent::ENDPOINT_ENDED);
  EXPECT_EQ(link->events[0].endpoint_ids, std::vector<uint64_t>{here->id});
  for (const auto& view : endpoints_.List(server)) {
    if (view.id == here->id) {
      EXPECT_EQ(view.state, v1::Endpoint::DISCONNECTED);
    }
  }
}

TEST_F(EndpointsTest, AWaitThatEndsFreesWhatWasBooked) {
  const auto session = Attach();
  const auto listener = Listen(session);
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(ReasonOf(Accept(session, listener->id, 20ms).get().status()), v1::WAIT_ENDED);
  EXPECT_EQ(broker_->books().Used(kUid).endpoints, 1u);
}

TEST_F(EndpointsTest, DisconnectEndsWaitingAccepts) {
  const auto session = Attach();
  const auto listener = Listen(session);
  auto waiting = Accept(session, listener->id);
  EXPECT_TRUE(Disconnect(session, listener->id).ok());
  EXPECT_EQ(ReasonOf(waiting.get().status()), v1::ENDPOINT_UNKNOWN);
  EXPECT_EQ(ReasonOf(Disconnect(session, listener->id)), v1::ENDPOINT_UNKNOWN);
}

TEST_F(EndpointsTest, AreUnknownToOtherSessions) {
  const auto owner = Attach();
  const auto other = Attach();
  const auto listener = Listen(owner);
  EXPECT_EQ(ReasonOf(Accept(other, listener->id).get().status()), v1::ENDPOINT_UNKNOWN);
  EXPECT_EQ(ReasonOf(Disconnect(other, listener->id)), v1::ENDPOINT_UNKNOWN);
  EXPECT_TRUE(endpoints_.List(other).empty());
}

TEST_F(EndpointsTest, EndWithTheirSession) {
  const auto server = Attach();
  const auto client = Attach();
  const auto listener = Listen(server);
  auto accepted = Accept(server, listener->id);
  auto connected = Connect(client, listener->info.local_port);
  ASSERT_TRUE(accepted.get().ok());
  ASSERT_TRUE(connected.get().ok());
  auto waiting = Accept(server, listener->id);
  EndAndWait(server);
  EXPECT_FALSE(waiting.get().ok());
  EXPECT_EQ(broker_->books().Used(kUid).endpoints, 1u);
}

TEST_F(EndpointsTest, ASessionIsThereUntilItsCallsAreAnswered) {
  // The answer of `start`, in which the session ends; whether it is still there then.
  const auto stays = [this](const SessionRef& session, auto start) {
    auto answered = std::make_shared<std::promise<bool>>();
    start([this, session, answered](auto) { answered->set_value(StaysWhenEnded(session)); });
    return answered->get_future();
  };
  const auto wish = [](std::chrono::milliseconds wait) {
    return ConnectionWish{
        .private_data = "", .deadline = std::chrono::steady_clock::now() + wait, .wanted = {}};
  };
  const auto listens = Attach();
  EXPECT_TRUE(stays(listens, [&](auto done) {
                endpoints_.Listen(listens, {"10.99.0.1", 0, 16, ""}, std::move(done));
              }).get());
  const auto disconnects = Attach();
  EXPECT_TRUE(stays(disconnects, [&, id = Listen(disconnects)->id](auto done) {
                endpoints_.Disconnect(disconnects, id, std::move(done));
              }).get());
  const auto waits = Attach();
  EXPECT_TRUE(stays(waits, [&, id = Listen(waits)->id](auto done) {
                endpoints_.Accept(waits, id, wish(1ms), std::move(done));
              }).get());
  const auto fails = Attach();
  EXPECT_TRUE(stays(fails, [&](auto done) {
                endpoints_.Connect(fails, "10.99.0.1", 7000, "", wish(5s), std::move(done));
              }).get());
  const auto accepts = Attach();
  const auto connects = Attach();
  const auto listener = Listen(accepts);
  auto accepted = stays(accepts, [&](auto done) {
    endpoints_.Accept(accepts, listener->id, wish(5s), std::move(done));
  });
  auto connected = stays(connects, [&](auto done) {
    endpoints_.Connect(connects, "10.99.0.1", listener->info.local_port, "", wish(5s),
                       std::move(done));
  });
  EXPECT_TRUE(accepted.get());
  EXPECT_TRUE(connected.get());
}

TEST_F(EndpointsTest, AcceptOfAConnectionIsRefused) {
  const auto server = Attach();
  const auto client = Attach();
  const auto listener = Listen(server);
  auto accepted = Accept(server, listener->id);
  ASSERT_TRUE(Connect(client, listener->info.local_port).get().ok());
  const auto connection = accepted.get();
  ASSERT_TRUE(connection.ok());
  EXPECT_EQ(ReasonOf(Accept(server, connection->id).get().status()), v1::ENDPOINT_STATE);
}

class SlowConnectTest : public EndpointsTest {
 protected:
  // As TCP does when the host does not answer.
  SlowConnectTest() : EndpointsTest(";fake0.connect_delay_ms=1000") {}
};

TEST_F(SlowConnectTest, OneUsersConnectsToABlackHoleLeaveRoomForOthers) {
  const auto greedy = Attach();
  const auto second = Attach();  // Of the same user.
  const auto other = Attach(kUid + 1);
  std::vector<std::future<Result>> attempts;
  for (uint64_t i = 0; i < Endpoints::kMostConnects; ++i) {
    attempts.push_back(Connect(i % 2 == 0 ? greedy : second, 7000, 10ms));
  }
  for (auto& attempt : attempts) EXPECT_EQ(ReasonOf(attempt.get().status()), v1::WAIT_ENDED);
  // The kernel works on them still: they count, and they are booked.
  const auto refused = Connect(second, 7000).get().status();
  EXPECT_EQ(ReasonOf(refused), v1::BUSY);
  EXPECT_EQ(DetailOf(refused)->limit(), Endpoints::kMostConnects);
  EXPECT_EQ(broker_->books().Used(kUid).endpoints, Endpoints::kMostConnects);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ReasonOf(Connect(other, 7000).get().status()), v1::CONNECTION_FAILED);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1900ms) << "it had no thread of its own";
  for (int i = 0; i < 20000 && broker_->books().Used(kUid).endpoints > 0; ++i) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(ReasonOf(Connect(greedy, 7000).get().status()), v1::CONNECTION_FAILED);
}

}  // namespace
}  // namespace mrd::broker
