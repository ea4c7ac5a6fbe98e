// Devices that come, go and fail while others are in use. What the kernel waits for is the fake's
// RemovalWaits: whether a descriptor of a removed device is open still.
#include <errno.h>

#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "tests/fabric/peers.h"
#include "tests/fabric/verbs_fixture.h"

namespace mrd::fabric {
namespace {

using std::chrono::milliseconds;

class VerbsHotPlug : public VerbsTest {
 protected:
  void StartWatched(const std::string& spec) {
    Start(spec);
    fabric_->Watch([this] { ++changed_; });
  }
  // Until the fabric says that something changed.
  bool WaitChanged(int more_than) {
    for (int i = 0; i < 20000 && changed_ <= more_than; ++i) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return changed_ > more_than;
  }
  static std::string Names(const std::vector<DeviceInfo>& devices) {
    std::string names;
    for (const DeviceInfo& device : devices) names += device.name + " ";
    return names;
  }
  std::string Removed() { return Names(fabric_->Refresh().removed); }
  std::string Added() { return Names(fabric_->Refresh().added); }

  std::atomic<int> changed_ = 0;
};

TEST_F(VerbsHotPlug, NothingNewIsNoChange) {
  Start("devices=fake0,fake1,other;other.endpoints=0");
  const int64_t contexts = fake_->live().contexts;
  for (int i = 0; i < 3; ++i) {
    const DeviceChanges changes = fabric_->Refresh();
    EXPECT_EQ(Names(changes.removed) + Names(changes.added), "");
  }
  EXPECT_EQ(fake_->live().contexts, contexts);
}

TEST_F(VerbsHotPlug, ADeviceIsLetGoOfWhenTheLastThingOnItHasEnded) {
  Start("devices=fake0,fake1");
  auto domain = MakeDomain();
  auto region = domain->Register(Page());
  ASSERT_TRUE(region.ok());
  fake_->Remove("fake0");
  EXPECT_EQ(Removed(), "fake0 ");
  EXPECT_TRUE(fake_->RemovalWaits());
  // Nothing new, though the kernel would let it pass.
  EXPECT_EQ(Detail(domain->Register(Page()).status()).reason(), v1::DEVICE_REMOVED);
  EXPECT_EQ(Detail(fabric_->CreateDomain("fake0").status()).reason(), v1::DEVICE_REMOVED);
  EXPECT_EQ(Detail(fabric_->CreateDomain("never0").status()).reason(), v1::DEVICE_UNKNOWN);
  EXPECT_TRUE((*region)->Deregister().ok());
  region = absl::CancelledError();
  EXPECT_TRUE(fake_->RemovalWaits());
  domain = nullptr;
  EXPECT_FALSE(fake_->RemovalWaits());
  EXPECT_EQ(Names(fabric_->Devices()), "fake1 ");
}

TEST_F(VerbsHotPlug, ADeviceWithNothingOnItIsLetGoOfAtOnce) {
  Start("devices=fake0,fake1,other;other.endpoints=0");
  fake_->Remove("fake1");
  fake_->Remove("other");
  EXPECT_EQ(Removed(), "fake1 other ");
  EXPECT_FALSE(fake_->RemovalWaits());
}

// librdmacm looks no further where there is no device left.
TEST_F(VerbsHotPlug, TheHostsLastDeviceIsLetGoOfToo) {
  Start("devices=fake0");
  auto domain = MakeDomain();
  fake_->Remove("fake0");
  EXPECT_EQ(Removed(), "fake0 ");
  domain = nullptr;
  EXPECT_FALSE(fake_->RemovalWaits());
  EXPECT_EQ(fabric_->Devices().size(), 0u);
  fake_->Add("fake0");
  EXPECT_EQ(Added(), "fake0 ");
  EXPECT_NE(MakeDomain(), nullptr);
}

TEST_F(VerbsHotPlug, TheSameNameIsAnotherGeneration) {
  Start("devices=fake0,fake1");
  const auto old = MakeDomain();
  fake_->Remove("fake0");
  fake_->Add("fake0");
  // Both at once: nobody looked in between.
  const DeviceChanges changes = fabric_->Refresh();
  ASSERT_EQ(Names(changes.removed), "fake0 ");
  ASSERT_EQ(Names(changes.added), "fake0 ");
  EXPECT_GT(changes.added[0].generation, changes.removed[0].generation);
  EXPECT_TRUE(changes.added[0].active);
  const auto fresh = MakeDomain();
  EXPECT_EQ(old->generation(), changes.removed[0].generation);
  EXPECT_EQ(fresh->generation(), changes.added[0].generation);
  EXPECT_TRUE(fake_->RemovalWaits());  // `old` stands.
  EXPECT_EQ(Detail(old->Register(Page()).status()).reason(), v1::DEVICE_REMOVED);
  const auto region = fresh->Register(Page());
  EXPECT_TRUE(region.ok());
}

TEST_F(VerbsHotPlug, OtherDevicesAreInUseAllAlong) {
  Start("devices=fake0,fake1,other;other.endpoints=0");
  const auto domain = MakeDomain("fake1");
  const auto region = domain->Register(Page());
  ASSERT_TRUE(region.ok());
  const int64_t contexts = fake_->live().contexts;
  for (int i = 0; i < 20; ++i) {
    for (const char* name : {"fake0", "other"}) {
      const auto here = MakeDomain(name);
      fake_->Remove(name);
      fabric_->Refresh();
      EXPECT_TRUE(domain->Register(Page()).ok());
    }
    EXPECT_FALSE(fake_->RemovalWaits());
    for (const char* name : {"fake0", "other"}) fake_->Add(name);
    EXPECT_EQ(Added(), "fake0 other ");
    EXPECT_EQ(fake_->live().contexts, contexts);
  }
}

TEST_F(VerbsHotPlug, AListThatCannotBeReadRemovesNothing) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  for (const int error : {EMFILE, ENOMEM}) {
    fake_->FailDeviceList(error);
    EXPECT_EQ(Removed(), "");
    EXPECT_TRUE(domain->Register(Page()).ok());
  }
  fake_->FailDeviceList(0);
  EXPECT_EQ(Removed(), "");
}

TEST_F(VerbsHotPlug, ADeviceThatCannotBeOpenedYetIsTriedAgain) {
  Start("devices=fake0,fake1");
  fake_->Remove("fake1");
  fabric_->Refresh();
  fake_->Add("fake1");
  fake_->Fail("fake1", "query", "EACCES@1");
  EXPECT_EQ(Added(), "");
  EXPECT_EQ(Added(), "fake1 ");
}

TEST_F(VerbsHotPlug, AFatalErrorIsARemovalAndTheDeviceComesBackWhenItIsPluggedAnew) {
  StartWatched("devices=fake0,fake1,other;other.endpoints=0");
  for (const std::string name : {"fake0", "other"}) {
    auto domain = MakeDomain(name);
    const int before = changed_;
    fake_->Fatal(name);
    ASSERT_TRUE(WaitChanged(before));
    EXPECT_EQ(Removed(), name + " ");
    EXPECT_EQ(Detail(fabric_->CreateDomain(name).status()).reason(), v1::DEVICE_REMOVED);
    domain = nullptr;
    // It is listed still, and is not opened again as it is.
    EXPECT_EQ(Added(), "");
    fake_->Remove(name);
    EXPECT_EQ(Added(), "");
    EXPECT_FALSE(fake_->RemovalWaits());
    fake_->Add(name);
    EXPECT_EQ(Added(), name + " ");
    EXPECT_NE(MakeDomain(name), nullptr);
  }
}

TEST_F(VerbsHotPlug, ADeviceThatAnswersNothingAnyMoreIsRemoved) {
  StartWatched("devices=fake0,fake1");
  fake_->Unplug("fake0");
  ASSERT_TRUE(WaitChanged(0));
  EXPECT_EQ(Removed(), "fake0 ");
}

TEST_F(VerbsHotPlug, PortsThatGoDownOrUpAreSeenAtOnce) {
  StartWatched("devices=fake0");
  for (const bool active : {false, true}) {
    const int before = changed_;
    fake_->SetPort("fake0", active);
    ASSERT_TRUE(WaitChanged(before));
    EXPECT_EQ(fabric_->Devices()[0].active, active);
    EXPECT_EQ(Removed(), "");
  }
}

TEST_F(VerbsHotPlug, NobodyIsCalledOnceNobodyWatches) {
  StartWatched("devices=fake0");
  fabric_->Watch({});
  fake_->SetPort("fake0", false);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(changed_, 0);
}

class VerbsHotPlugEndpoints : public VerbsHotPlug {
 protected:
  std::unique_ptr<Listener> MakeListener(const std::string& address) {
    auto listener = fabric_->Listen(address, 0, 4);
    EXPECT_TRUE(listener.ok()) << listener.status();
    return listener.ok() ? *std::move(listener) : nullptr;
  }
};

// By CM events, by the look alone (a fatal error that the kernel makes nothing of), and in either
// order.
class VerbsHotPlugAttempts : public VerbsHotPlugEndpoints,
                             public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(, VerbsHotPlugAttempts, testing::Bool());

TEST_P(VerbsHotPlugAttempts, FailWithTheReason) {
  const bool by_event = GetParam();
  Start("devices=fake0,fake1");
  const auto domain = MakeDomain();
  auto listener = MakeListener("10.99.0.1");
  auto any = MakeListener("0.0.0.0");
  fake_->cm().HoldEstablished(true);
  Side waiting(domain), half(domain), connecting(domain), other(MakeDomain("fake1"));
  listener->Accept(waiting.Spec(), waiting.Done());
  // Answered, and the other side's last word never comes.
  any->Accept(half.Spec(), half.Done());
  Side peer(domain);
  fabric_->Connect("10.99.0.1", any->info().local_port, "", peer.Spec(), peer.Done());
  ASSERT_TRUE(peer.Wait().ok());
  // Nobody has answered it.
  fabric_->Connect("10.99.0.1", any->info().local_port, "", connecting.Spec(), connecting.Done());
  EXPECT_TRUE(connecting.Idle(milliseconds(30)));

  fake_->Remove("fake0", by_event);
  if (!by_event) {
    EXPECT_EQ(Removed(), "fake0 ");
  }
  EXPECT_EQ(ReasonOf(waiting.Wait()), v1::DEVICE_REMOVED);
  EXPECT_EQ(ReasonOf(half.Wait()), v1::DEVICE_REMOVED);
  EXPECT_EQ(ReasonOf(connecting.Wait()), v1::DEVICE_REMOVED);
  if (by_event) {
    EXPECT_EQ(Removed(), "fake0 ");
  }
  Side late(domain);
  listener->Accept(late.Spec(), late.Done());
  EXPECT_EQ(ReasonOf(late.Wait()), v1::DEVICE_REMOVED);

  // A listener on every device goes on.
  fake_->cm().HoldEstablished(false);
  any->Accept(other.Spec(), other.Done());
  Side outside(MakeDomain("fake1"));
  fabric_->Connect("10.99.1.1", any->info().local_port, "10.99.1.1", outside.Spec(),
                   outside.Done());
  EXPECT_TRUE(other.Wait().ok()) << other.Wait();
  EXPECT_TRUE(outside.Wait().ok()) << outside.Wait();
  EXPECT_EQ(other.info().device, "fake1");
}

TEST_F(VerbsHotPlugEndpoints, AConnectionHoldsItsDeviceUntilItEnds) {
  StartWatched("devices=fake0,fake1");
  auto domain = MakeDomain();
  auto listener = MakeListener("10.99.0.1");
  Side a(domain), c(domain);
  listener->Accept(a.Spec(), a.Done());
  fabric_->Connect("10.99.0.1", listener->info().local_port, "", c.Spec(), c.Done());
  ASSERT_TRUE(a.Wait().ok() && c.Wait().ok());
  EXPECT_EQ(a.info().generation, domain->generation());
  EXPECT_EQ(listener->info().generation, domain->generation());
  fake_->Remove("fake0");
  ASSERT_TRUE(WaitChanged(0));  // The ids were told, before any uevent.
  EXPECT_TRUE(a.WaitLeft());
  EXPECT_TRUE(c.WaitLeft());
  EXPECT_EQ(Removed(), "fake0 ");
  EXPECT_TRUE(fake_->RemovalWaits());
  a.Disconnect();
  c.Disconnect();
  // The sides hold the domain for the callbacks that they gave out.
  domain = nullptr;
  EXPECT_TRUE(fake_->RemovalWaits());
}

TEST_F(VerbsHotPlugEndpoints, ANewDeviceTakesEndpoints) {
  Start("devices=fake0,fake1");
  fake_->Remove("fake0");
  fabric_->Refresh();
  fake_->Add("fake0");
  fabric_->Refresh();
  const auto domain = MakeDomain();
  auto listener = MakeListener("10.99.0.1");
  EXPECT_EQ(listener->info().device, "fake0");
  Side a(domain), c(domain);
  listener->Accept(a.Spec(), a.Done());
  fabric_->Connect("10.99.0.1", listener->info().local_port, "", c.Spec(), c.Done());
  ASSERT_TRUE(a.Wait().ok() && c.Wait().ok());
  fake_->FailQueuePairs();  // Its asynchronous events are heard.
  EXPECT_TRUE(a.WaitLeft());
}

}  // namespace
}  // namespace mrd::fabric
