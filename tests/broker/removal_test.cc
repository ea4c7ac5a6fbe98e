// Devices that go away under what sessions have on them. The fixture's end asserts that books and
// the faked devices are empty.
#include <gtest/gtest.h>

#include <thread>

#include "tests/broker/broker_fixture.h"

namespace mrd::broker {
namespace {

using namespace std::chrono_literals;
using Kind = v1::AttachEvent::EventKind;

class RemovalTest : public BrokerTest {
 protected:
  explicit RemovalTest(const std::string& more = "")
      : BrokerTest("devices=fake0,fake1;fake0.address=10.99.0.1;fake1.address=10.99.1.1" + more) {}

  struct Client {
    std::shared_ptr<FakeLink> link = std::make_shared<FakeLink>();
    SessionRef session;
  };
  Client MakeClient(uint32_t uid = kUid) {
    Client client;
    client.session = Attach(uid, client.link);
    Pass(client.session, 1);
    return client;
  }

  template <typename Condition>
  static bool Becomes(Condition condition) {
    for (int i = 0; i < 20000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(1ms);
    }
    return false;
  }
  // As the main loop does at a uevent.
  void Look() { broker_->device_watch().Look(); }
  void Remove(const std::string& device) {
    verbs_.Remove(device);
    Look();
  }
  bool LetGo() {
    return Becomes([this] { return !verbs_.RemovalWaits(); });
  }
  static std::vector<Event> EventsOf(FakeLink& link, Kind kind) {
    std::vector<Event> events;
    MutexLock lock(link.mutex);
    for (const Event& event : link.events) {
      if (event.kind == kind) events.push_back(event);
    }
    return events;
  }
  static bool WaitEvents(const Client& client, Kind kind, size_t count) {
    return Becomes([&] { return EventsOf(*client.link, kind).size() >= count; });
  }
  // The next registrations of the session find it.
  bool WaitRegister(const SessionRef& session, const std::string& device) {
    return Becomes([&] { return Register(session, Spec({Range(0, 4096)}, device)).ok(); });
  }

  template <typename Start>
  std::future<absl::StatusOr<EndpointView>> Async(Start start) {
    auto promise = std::make_shared<std::promise<absl::StatusOr<EndpointView>>>();
    start(
        [promise](absl::StatusOr<EndpointView> result) { promise->set_value(std::move(result)); });
    return promise->get_future();
  }
  absl::StatusOr<EndpointView> Listen(const SessionRef& session, const std::string& address) {
    return Async([&](EndpointDone done) {
             endpoints_.Listen(session, {address, 0, 16, ""}, std::move(done));
           })
        .get();
  }
  static ConnectionWish Wish() {
    return {.private_data = "", .deadline = std::chrono::steady_clock::now() + 20s, .wanted = {}};
  }
  auto Accept(const SessionRef& session, uint64_t listener) {
    return Async(
        [&](EndpointDone done) { endpoints_.Accept(session, listener, Wish(), std::move(done)); });
  }
  auto Connect(const SessionRef& session, const std::string& address, uint32_t port) {
    return Async([&](EndpointDone done) {
      endpoints_.Connect(session, address, port, "", Wish(), std::move(done));
    });
  }

  Endpoints endpoints_{*broker_};
};

TEST_F(RemovalTest, EndsLeasesTellsTheirHolderAndLetsTheDeviceGo) {
  const Client one = MakeClient(), other = MakeClient(kUid + 1), idle = MakeClient();
  const auto lost = Register(one.session, Spec({Range(0, 4096), Range(4096, 4096)}));
  const auto theirs = Register(other.session, Spec({Range(0, 8192)}));
  const auto kept = Register(one.session, Spec({Range(0, 4096)}, "fake1"));
  ASSERT_TRUE(lost.ok() && theirs.ok() && kept.ok());
  Remove("fake0");
  ASSERT_TRUE(LetGo());
  ASSERT_TRUE(WaitEvents(one, v1::AttachEvent::DEVICE_REMOVED, 1));
  ASSERT_TRUE(WaitEvents(other, v1::AttachEvent::DEVICE_REMOVED, 1));
  const Event event = EventsOf(*one.link, v1::AttachEvent::DEVICE_REMOVED)[0];
  EXPECT_EQ(event.device, "fake0");
  EXPECT_EQ(event.lease_ids, (std::vector<uint64_t>{(**lost)[0].id, (**lost)[1].id}));
  EXPECT_TRUE(EventsOf(*idle.link, v1::AttachEvent::DEVICE_REMOVED).empty());
  EXPECT_EQ(broker_->books().Used(kUid).regions, 1u);
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 4096u);
  EXPECT_EQ(broker_->books().Used(kUid + 1).regions, 0u);
  EXPECT_EQ(one.session->View().held.regions, 1u);
  EXPECT_EQ(verbs_.live().mrs, 1);
  EXPECT_EQ(ReasonOf(Deregister(one.session, {(**lost)[0].id})), v1::LEASE_UNKNOWN);
  EXPECT_TRUE(Deregister(one.session, {(**kept)[0].id}).ok());
  EXPECT_EQ(ReasonOf(Register(one.session, Spec({Range(0, 4096)})).status()), v1::DEVICE_REMOVED);
  EXPECT_EQ(ReasonOf(Register(one.session, Spec({Range(0, 4096)}, "never0")).status()),
            v1::DEVICE_UNKNOWN);
}

TEST_F(RemovalTest, ALeaseOnSeveralDevicesLosesAKeyAndGoesOn) {
  const Client client = MakeClient();
  RegisterSpec spec = Spec({Range(0, 4096)});
  spec.devices = {"fake0", "fake1"};
  const auto made = Register(client.session, spec);
  ASSERT_TRUE(made.ok());
  const uint64_t id = (**made)[0].id;
  const uint32_t key_of_fake1 = (**made)[0].keys[1].lkey;
  Remove("fake0");
  ASSERT_TRUE(WaitEvents(client, v1::AttachEvent::DEVICE_REMOVED, 1));
  EXPECT_EQ(EventsOf(*client.link, v1::AttachEvent::DEVICE_REMOVED)[0].lease_ids,
            std::vector<uint64_t>{id});
  const auto leases = broker_->Leases(client.session, 0, 10).leases;
  ASSERT_EQ(leases.size(), 1u);
  ASSERT_EQ(leases[0].second.keys.size(), 1u);
  EXPECT_EQ(leases[0].second.keys[0].lkey, key_of_fake1);
  EXPECT_EQ(broker_->books().Used(kUid).regions, 1u);
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 4096u);
  Remove("fake1");
  ASSERT_TRUE(WaitEvents(client, v1::AttachEvent::DEVICE_REMOVED, 2));
  ASSERT_TRUE(LetGo());
  EXPECT_EQ(ReasonOf(Deregister(client.session, {id})), v1::LEASE_UNKNOWN);
  EXPECT_EQ(broker_->books().Used(kUid).regions, 0u);
}

TEST_F(RemovalTest, TheNewOneIsAnnouncedAfterTheOldOnesEndAndIsUsable) {
  const Client client = MakeClient(), idle = MakeClient();
  const auto old = Register(client.session, Spec({Range(0, 4096)}));
  ASSERT_TRUE(old.ok());
  verbs_.Remove("fake0");
  verbs_.Add("fake0");
  Look();
  ASSERT_TRUE(WaitEvents(client, v1::AttachEvent::DEVICE_ADDED, 1));
  ASSERT_TRUE(WaitEvents(idle, v1::AttachEvent::DEVICE_ADDED, 1));
  {
    MutexLock lock(client.link->mutex);
    ASSERT_EQ(client.link->events.size(), 2u);
    EXPECT_EQ(client.link->events[0].kind, v1::AttachEvent::DEVICE_REMOVED);
    EXPECT_EQ(client.link->events[1].device, "fake0");
  }
  EXPECT_TRUE(LetGo());
  const auto fresh = Register(client.session, Spec({Range(0, 4096)}));
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_GT((**fresh)[0].keys[0].device->generation, (**old)[0].keys[0].device->generation);
  EXPECT_EQ(ReasonOf(Deregister(client.session, {(**old)[0].id})), v1::LEASE_UNKNOWN);
  EXPECT_TRUE(Deregister(client.session, {(**fresh)[0].id}).ok());
}

TEST_F(RemovalTest, TwentyTimesLeaveNothing) {
  const Client client = MakeClient();
  const int64_t contexts = verbs_.live().contexts;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(Register(client.session, Spec({Range(0, 4096)})).ok());
    Remove("fake0");
    ASSERT_TRUE(LetGo());
    verbs_.Add("fake0");
    Look();
    ASSERT_TRUE(WaitRegister(client.session, "fake0"));
    EXPECT_EQ(verbs_.live().pds, 1);
    EXPECT_EQ(verbs_.live().contexts, contexts);
  }
}

// More ids than a packet takes.
TEST_F(RemovalTest, ManyLeasesAreToldInSeveralEvents) {
  const Client client = MakeClient();
  std::vector<RangeSpec> ranges(1000, Range(0, 4096));
  ASSERT_TRUE(Register(client.session, Spec(ranges)).ok());
  Remove("fake0");
  ASSERT_TRUE(WaitEvents(client, v1::AttachEvent::DEVICE_REMOVED, 4));
  size_t told = 0;
  for (const Event& event : EventsOf(*client.link, v1::AttachEvent::DEVICE_REMOVED)) {
    told += event.lease_ids.size();
    EXPECT_LE(event.lease_ids.size(), 300u);
  }
  EXPECT_EQ(told, 1000u);
}

TEST_F(RemovalTest, EndsEndpointsAndAcceptsThatWait) {
  const Client server = MakeClient(), peer = MakeClient(), far = MakeClient();
  const auto listener = Listen(server.session, "10.99.0.1");
  const auto elsewhere = Listen(far.session, "10.99.1.1");
  ASSERT_TRUE(listener.ok() && elsewhere.ok());
  auto accepting = Accept(server.session, listener->id);
  const auto connected = Connect(peer.session, "10.99.0.1", listener->info.local_port).get();
  const auto accepted = accepting.get();
  ASSERT_TRUE(accepted.ok() && connected.ok());
  auto waiting = Accept(server.session, listener->id);
  Remove("fake0");
  EXPECT_EQ(ReasonOf(waiting.get().status()), v1::DEVICE_REMOVED);
  ASSERT_TRUE(LetGo());
  ASSERT_TRUE(WaitEvents(server, v1::AttachEvent::DEVICE_REMOVED, 1));
  const auto ended = EventsOf(*server.link, v1::AttachEvent::DEVICE_REMOVED)[0].endpoint_ids;
  EXPECT_EQ(ended, (std::vector<uint64_t>{listener->id, accepted->id}));
  ASSERT_TRUE(WaitEvents(peer, v1::AttachEvent::DEVICE_REMOVED, 1));
  EXPECT_TRUE(endpoints_.List(server.session).empty());
  EXPECT_EQ(endpoints_.List(far.session).size(), 1u);
  EXPECT_TRUE(Becomes([&] { return broker_->books().Used(kUid).endpoints == 1; }));
}

TEST_F(RemovalTest, ASessionThatEndsMeanwhileIsNoMatter) {
  for (int i = 0; i < 20; ++i) {
    const Client client = MakeClient();
    ASSERT_TRUE(Register(client.session, Spec({Range(0, 4096), Range(4096, 4096)})).ok());
    std::thread end([&] { broker_->End(client.session); });
    Remove("fake0");
    end.join();
    ASSERT_TRUE(LetGo());
    verbs_.Add("fake0");
    Look();
    const Client next = MakeClient();
    ASSERT_TRUE(WaitRegister(next.session, "fake0"));
    EndAndWait(next.session);
  }
}

TEST_F(RemovalTest, AFatalErrorAndADeadDeviceAreRemovals) {
  const Client client = MakeClient();
  ASSERT_TRUE(Register(client.session, Spec({Range(0, 4096)})).ok());
  ASSERT_TRUE(Register(client.session, Spec({Range(0, 4096)}, "fake1")).ok());
  verbs_.Fatal("fake0");
  ASSERT_TRUE(WaitEvents(client, v1::AttachEvent::DEVICE_REMOVED, 1));
  verbs_.Unplug("fake1");
  ASSERT_TRUE(WaitEvents(client, v1::AttachEvent::DEVICE_REMOVED, 2));
  EXPECT_EQ(EventsOf(*client.link, v1::AttachEvent::DEVICE_REMOVED)[1].device, "fake1");
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 0u);
  EXPECT_TRUE(Becomes([&] { return broker_->devices().Known().empty(); }));
}

TEST_F(RemovalTest, APortThatGoesDownIsKnownAtOnce) {
  const Client client = MakeClient();
  ASSERT_TRUE(Register(client.session, Spec({Range(0, 4096)})).ok());
  for (const bool active : {false, true}) {
    verbs_.SetPort("fake0", active);
    EXPECT_TRUE(Becomes([&] { return broker_->devices().Known()[0]->active == active; }));
  }
  EXPECT_EQ(broker_->books().Used(kUid).regions, 1u);  // It stands.
}

class SlowRemovalTest : public RemovalTest {
 protected:
  SlowRemovalTest() : RemovalTest(";fake0.reg_delay_ms=100") {}
};

TEST_F(SlowRemovalTest, ARegistrationUnderWayEndsWithTheReasonAndLeavesNothing) {
  const Client client = MakeClient();
  auto running = StartRegister(client.session, Spec({Range(0, 4096), Range(4096, 4096)}));
  ASSERT_TRUE(Becomes([this] { return verbs_.live().pds == 1; }));
  Remove("fake0");
  EXPECT_EQ(ReasonOf(running.get().status()), v1::DEVICE_REMOVED);
  EXPECT_TRUE(LetGo());
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 0u);
  EXPECT_EQ(verbs_.live().mrs, 0);
}

// Its last region is made when the device has been given up, and all has been looked at.
TEST_F(SlowRemovalTest, ARegistrationThatEndsBehindTheRemovalIsRefused) {
  const Client client = MakeClient();
  auto running = StartRegister(client.session, Spec({Range(0, 4096)}));
  ASSERT_TRUE(Becomes([this] { return verbs_.live().pds == 1; }));
  verbs_.Remove("fake0");
  verbs_.Add("fake0");
  Look();
  EXPECT_EQ(ReasonOf(running.get().status()), v1::DEVICE_REMOVED);
  EXPECT_TRUE(LetGo());
  EXPECT_TRUE(WaitRegister(client.session, "fake0"));
}

TEST_F(RemovalTest, RegistrationsAllAlongGetAKeyOfOneGenerationOrTheReason) {
  const Client client = MakeClient();
  std::atomic<bool> stop = false;
  std::thread caller([&] {
    while (!stop) {
      const auto made = Register(client.session, Spec({Range(0, 4096)}));
      if (made.ok()) {
        const auto ended = Deregister(client.session, {(**made)[0].id});
        const v1::Reason reason = ReasonOf(ended);
        // Its device's end has it, or had it.
        EXPECT_TRUE(ended.ok() || reason == v1::LEASE_UNKNOWN || reason == v1::BUSY) << ended;
      } else {
        EXPECT_EQ(ReasonOf(made.status()), v1::DEVICE_REMOVED) << made.status();
      }
    }
  });
  for (int i = 0; i < 30; ++i) {
    std::this_thread::sleep_for(2ms);
    verbs_.Remove("fake0");
    if (i % 2 == 0) Look();
    verbs_.Add("fake0");
    Look();
  }
  EXPECT_TRUE(LetGo());
  EXPECT_TRUE(Becomes([&] { return broker_->devices().Known().size() == 2; }));
  stop = true;
  caller.join();
  EXPECT_TRUE(WaitRegister(client.session, "fake0"));
}

}  // namespace
}  // namespace mrd::broker
