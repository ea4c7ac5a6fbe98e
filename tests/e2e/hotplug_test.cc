// Devices that come and go under the real daemon: the fake kernel sends uevents and asynchronous
// events, and its removal of a device waits until the daemon holds nothing of it. The fixture's end
// asserts that books, descriptors and devices are as they were.
#include <thread>

#include "gmock/gmock.h"
#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class HotPlugTest : public DaemonTest {
 protected:
  void StartWith(const std::string& devices) { Start({.fabric = "verbs", .devices = devices}); }

  v1::AttachEvent Next(RawClient& client) {
    const auto packet = client.attach().Receive();
    EXPECT_TRUE(packet && packet->has_event());
    return packet ? packet->event() : v1::AttachEvent();
  }
  // The next event that is of this kind, and of this device.
  void Told(RawClient& client, v1::AttachEvent::EventKind kind, const std::string& device,
            const std::vector<uint64_t>& leases = {}) {
    const v1::AttachEvent event = Next(client);
    EXPECT_EQ(event.kind(), kind) << event.ShortDebugString();
    EXPECT_EQ(event.device(), device);
    EXPECT_EQ(std::vector<uint64_t>(event.lease_ids().begin(), event.lease_ids().end()), leases);
  }
  bool LetGo() {
    return WaitUntil(kPatience, [this] { return daemon().Control("removal_waits") == "no"; });
  }
  std::string Devices(RawClient& client) {
    std::string text;
    const auto listed = client.ListDevices();
    for (const auto& device : listed.response.devices()) {
      text += device.name() + (device.state() == v1::Device::ACTIVE ? " up " : " down ");
    }
    return text;
  }
  v1::RegisterRequest On(RawClient& client, const std::string& device) {
    auto request = RequestFor(client.Pass(memory_), memory_);
    request.add_devices(device);
    return request;
  }

  const Memory memory_{kPage};
};

TEST_F(HotPlugTest, S28ARemovedDeviceEndsWhatLiesOnItAndComesBack) {
  StartWith("devices=fake0,fake1");
  RawClient holder(dir()), bystander(dir());
  const auto lost = holder.Register(On(holder, "fake0"));
  const auto kept = holder.Register(On(holder, "fake1"));
  ASSERT_TRUE(lost.ok() && kept.ok());
  const uint64_t lease = lost.response.leases(0).lease_id();
  daemon().Control("remove fake0");
  ASSERT_TRUE(LetGo());
  Told(holder, v1::AttachEvent::DEVICE_REMOVED, "fake0", {lease});
  EXPECT_EQ(Devices(bystander), "fake1 up ");
  EXPECT_EQ(holder.Register(On(holder, "fake0")).reason(), v1::DEVICE_REMOVED);
  EXPECT_EQ(holder.Deregister({lease}).reason(), v1::LEASE_UNKNOWN);
  EXPECT_EQ(holder.GetStatus().response.session().regions(), 1u);

  daemon().Control("add fake0");
  Told(holder, v1::AttachEvent::DEVICE_ADDED, "fake0");
  Told(bystander, v1::AttachEvent::DEVICE_ADDED, "fake0");
  const auto fresh = holder.Register(On(holder, "fake0"));
  ASSERT_TRUE(fresh.ok()) << fresh.text();
  EXPECT_GT(fresh.response.leases(0).keys(0).generation(),
            lost.response.leases(0).keys(0).generation());
  EXPECT_TRUE(holder.Deregister({kept.response.leases(0).lease_id()}).ok());
  EXPECT_THAT(daemon().Log(), HasSubstr("device fake0 was removed (generation 1)"));
  EXPECT_THAT(daemon().Log(), HasSubstr("device fake0 was added (generation 2)"));
}

TEST_F(HotPlugTest, UeventsThatWereLostAreMadeUpForByALook) {
  StartWith("devices=fake0,fake1");
  RawClient client(dir());
  const auto lost = client.Register(On(client, "fake0"));
  ASSERT_TRUE(lost.ok());
  daemon().Control("lose_uevents");
  daemon().Control("remove fake0");
  Told(client, v1::AttachEvent::DEVICE_REMOVED, "fake0", {lost.response.leases(0).lease_id()});
  EXPECT_TRUE(LetGo());
  EXPECT_TRUE(WaitUntil(
      kPatience, [this] { return daemon().Log().find("uevents were lost") != std::string::npos; }));
  daemon().Control("add fake0");
  Told(client, v1::AttachEvent::DEVICE_ADDED, "fake0");
}

TEST_F(HotPlugTest, TheDaemonLivesWithoutAnyDevice) {
  StartWith("devices=fake0");
  RawClient client(dir());
  const auto lost = client.Register(On(client, "fake0"));
  ASSERT_TRUE(lost.ok());
  daemon().Control("remove fake0");
  Told(client, v1::AttachEvent::DEVICE_REMOVED, "fake0", {lost.response.leases(0).lease_id()});
  ASSERT_TRUE(LetGo());
  EXPECT_EQ(Devices(client), "");
  EXPECT_EQ(client.Register(RequestFor(client.Pass(memory_), memory_)).reason(),
            v1::DEVICE_UNKNOWN);
  daemon().Control("add fake0");
  Told(client, v1::AttachEvent::DEVICE_ADDED, "fake0");
  EXPECT_TRUE(client.Register(RequestFor(client.Pass(memory_), memory_)).ok());
}

TEST_F(HotPlugTest, TwentyRemovalsUnderARunningClientLeaveNothing) {
  StartWith("devices=fake0,fake1");
  RawClient client(dir());
  const auto request = On(client, "fake0");
  for (int i = 0; i < 20; ++i) {
    const auto made = client.Register(request);
    ASSERT_TRUE(made.ok()) << made.text();
    daemon().Control("remove fake0");
    Told(client, v1::AttachEvent::DEVICE_REMOVED, "fake0", {made.response.leases(0).lease_id()});
    ASSERT_TRUE(LetGo());
    daemon().Control("add fake0");
    Told(client, v1::AttachEvent::DEVICE_ADDED, "fake0");
  }
}

TEST_F(HotPlugTest, EndpointsEndWithTheirDevice) {
  StartWith("devices=fake0,fake1");
  RawClient server(dir()), client(dir());
  const auto listening = server.Listen("10.99.0.1");
  ASSERT_TRUE(listening.ok());
  Answer<v1::AcceptResponse> waiting;
  std::thread accept(
      [&] { waiting = server.Accept(listening.response.endpoint().endpoint_id(), kPatience); });
  ASSERT_TRUE(WaitUntil(kPatience, [&] { return Look().endpoints == 2; }));
  daemon().Control("remove fake0");
  accept.join();
  EXPECT_EQ(waiting.reason(), v1::DEVICE_REMOVED) << waiting.text();
  EXPECT_TRUE(LetGo());
  const v1::AttachEvent event = Next(server);
  EXPECT_EQ(event.kind(), v1::AttachEvent::DEVICE_REMOVED);
  EXPECT_THAT(event.endpoint_ids(), ElementsAre(listening.response.endpoint().endpoint_id()));
  daemon().Control("add fake0");
  Told(server, v1::AttachEvent::DEVICE_ADDED, "fake0");
  EXPECT_TRUE(server.Listen("10.99.0.1").ok());
}

TEST_F(HotPlugTest, PortsAreSeenAtOnceAndLogged) {
  StartWith("devices=fake0,fake1");
  RawClient client(dir());
  daemon().Control("port fake0 down");
  EXPECT_TRUE(WaitUntil(kPatience, [&] { return Devices(client) == "fake0 down fake1 up "; }));
  daemon().Control("port fake0 up");
  EXPECT_TRUE(WaitUntil(kPatience, [&] { return Devices(client) == "fake0 up fake1 up "; }));
  EXPECT_THAT(daemon().Log(), HasSubstr("device fake0: no port is up"));
  EXPECT_THAT(daemon().Log(), HasSubstr("device fake0: a port is up"));
}

TEST_F(HotPlugTest, AFatalErrorIsARemoval) {
  StartWith("devices=fake0,fake1");
  {
    RawClient client(dir());
    const auto lost = client.Register(On(client, "fake0"));
    ASSERT_TRUE(lost.ok());
    daemon().Control("fatal fake0");
    Told(client, v1::AttachEvent::DEVICE_REMOVED, "fake0", {lost.response.leases(0).lease_id()});
    EXPECT_EQ(Devices(client), "fake1 up ");
    daemon().Control("remove fake0");
    ASSERT_TRUE(LetGo());
    daemon().Control("add fake0");
    Told(client, v1::AttachEvent::DEVICE_ADDED, "fake0");
    EXPECT_TRUE(client.Register(On(client, "fake0")).ok());
  }
  EXPECT_THAT(daemon().Log(), HasSubstr("device fake0: fatal error"));
  EXPECT_TRUE(WaitUntil(kPatience, [this] {
    const std::string text = admin().GetMetrics().response.text();
    return text.find("mrd_device_events_total{event=\"fatal\"} 1\n") != std::string::npos;
  }));
}

// A session is known to the daemon a moment before its client is.
TEST_F(HotPlugTest, NoEventOvertakesTheWelcome) {
  StartWith("devices=fake0,fake1");
  std::atomic<bool> over = false;
  std::thread plug([&] {
    while (!over) {
      daemon().Control("remove fake0");
      EXPECT_TRUE(LetGo());
      daemon().Control("add fake0");
    }
  });
  for (int i = 0; i < Scaled(2000); ++i) {
    const AttachSocket client(dir() + "/attach.sock");
    client.SendHello();
    auto packet = client.Receive();
    while (packet && packet->has_challenge()) packet = client.Receive();
    ASSERT_TRUE(packet && packet->has_welcome())
        << (packet ? packet->ShortDebugString() : "hung up");
  }
  over = true;
  plug.join();
}

}  // namespace
}  // namespace mrd::e2e
