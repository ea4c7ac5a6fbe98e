// Registering: keys, addresses, several ranges, buffers and devices, all of it or none.
#include <set>

#include "gmock/gmock.h"
#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

class RegistrationTest : public EachFabricTest {};
MRD_ON_EACH_FABRIC(RegistrationTest);

TEST_P(RegistrationTest, ARegionHasKeysAndTheClientsOwnAddress) {
  StartThis();
  RawClient client(dir());
  const Memory memory(4 * kPage);
  auto request = RequestFor(client.Pass(memory), memory.addr() + kPage + 7, 100, kPage + 7);
  const auto answer = client.Register(request);
  ASSERT_TRUE(answer.ok()) << answer.text();
  ASSERT_EQ(answer.response.leases_size(), 1);
  const v1::Lease& lease = answer.response.leases(0);
  EXPECT_NE(lease.lease_id(), 0u);
  EXPECT_EQ(lease.addr(), memory.addr() + kPage + 7);
  EXPECT_EQ(lease.offset(), kPage + 7);
  EXPECT_EQ(lease.length(), 100u);
  EXPECT_FALSE(lease.has_remaining());
  EXPECT_THAT(lease.access_flags(), testing::ElementsAre(v1::LOCAL_WRITE, v1::REMOTE_WRITE));
  ASSERT_EQ(lease.keys_size(), 1);
  EXPECT_EQ(lease.keys(0).device(), device());
  EXPECT_NE(lease.keys(0).rkey(), 0u);
  EXPECT_NE(lease.keys(0).generation(), 0u);

  const auto status = client.GetStatus();
  EXPECT_EQ(status.response.session().regions(), 1u);
  EXPECT_EQ(status.response.session().pinned_bytes(), kPage);
  EXPECT_EQ(status.response.session().leases(), 1u);
  EXPECT_EQ(status.response.session().buffers(), 1u);
  EXPECT_FALSE(status.response.has_totals()) << "totals are for admin sessions";
}

TEST_P(RegistrationTest, ThePresetsAreLibrdmacmsAndFlagsAddToThem) {
  StartThis();
  RawClient client(dir());
  const Memory memory(kPage);
  const uint64_t id = client.Pass(memory);
  const auto flags_of = [&](v1::Access::Preset preset, std::vector<v1::AccessFlag> flags) {
    auto request = RequestFor(id, memory);
    request.mutable_access()->set_preset(preset);
    for (const v1::AccessFlag flag : flags) request.mutable_access()->add_flags(flag);
    const auto answer = client.Register(request);
    EXPECT_TRUE(answer.ok()) << answer.text();
    std::set<int> granted;
    for (const auto& lease : answer.response.leases()) {
      granted.insert(lease.access_flags().begin(), lease.access_flags().end());
    }
    return granted;
  };
  using Flags = std::set<int>;
  EXPECT_EQ(flags_of(v1::Access::REG_MSGS, {}), Flags({v1::LOCAL_WRITE}));
  EXPECT_EQ(flags_of(v1::Access::REG_READ, {}), Flags({v1::LOCAL_WRITE, v1::REMOTE_READ}));
  EXPECT_EQ(flags_of(v1::Access::REG_WRITE, {}), Flags({v1::LOCAL_WRITE, v1::REMOTE_WRITE}));
  EXPECT_EQ(flags_of(v1::Access::REG_WRITE, {v1::REMOTE_READ}),
            Flags({v1::LOCAL_WRITE, v1::REMOTE_WRITE, v1::REMOTE_READ}));
  EXPECT_EQ(flags_of(v1::Access::PRESET_UNSPECIFIED, {v1::REMOTE_READ}), Flags({v1::REMOTE_READ}));
}

TEST_P(RegistrationTest, OneCallTakesManyRangesOfManyBuffersInTheirOrder) {
  StartThis();
  RawClient client(dir());
  const Memory first(4 * kPage);
  const Memory second(2 * kPage);
  const uint64_t first_id = client.Pass(first);
  const uint64_t second_id = client.Pass(second);
  auto request = RequestFor(first_id, first.addr() + 2 * kPage, kPage, 2 * kPage);
  AddRange(&request, second_id, second.addr(), 2 * kPage);
  AddRange(&request, first_id, first.addr(), 10);
  const auto answer = client.Register(request);
  ASSERT_TRUE(answer.ok()) << answer.text();
  ASSERT_EQ(answer.response.leases_size(), 3);
  std::set<uint64_t> ids;
  std::set<uint32_t> keys;
  for (int i = 0; i < 3; ++i) {
    const v1::Lease& lease = answer.response.leases(i);
    EXPECT_EQ(lease.addr(), request.ranges(i).addr());
    EXPECT_EQ(lease.buffer_id(), request.ranges(i).buffer_id());
    EXPECT_EQ(lease.length(), request.ranges(i).length());
    ids.insert(lease.lease_id());
    keys.insert(lease.keys(0).rkey());
  }
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(keys.size(), 3u);
  EXPECT_EQ(client.GetStatus().response.session().pinned_bytes(), 4 * kPage);
}

TEST_P(RegistrationTest, OneBadRangeAmongManyAndNothingIsRegistered) {
  StartThis();
  RawClient client(dir());
  const Memory memory(4 * kPage);
  const uint64_t id = client.Pass(memory);
  ASSERT_TRUE(client.Register(RequestFor(id, memory)).ok());
  const Holdings before = Look();
  auto request = RequestFor(id, memory.addr(), kPage);
  AddRange(&request, id, memory.addr() + kPage, kPage, kPage);
  AddRange(&request, id, memory.addr() + 4 * kPage, kPage, 4 * kPage);  // Beyond its end.
  const auto answer = client.Register(request);
  EXPECT_EQ(answer.reason(), v1::OUT_OF_RANGE) << answer.text();
  EXPECT_EQ(Look(), before);
}

TEST_P(RegistrationTest, ReleaseAfterClosesTheBuffersAndLeavesTheRegions) {
  StartThis();
  RawClient client(dir());
  const Memory memory(kPage);
  auto request = RequestFor(client.Pass(memory), memory);
  request.set_release_after(true);
  const auto answer = client.Register(request);
  ASSERT_TRUE(answer.ok()) << answer.text();
  auto session = client.GetStatus().response.session();
  EXPECT_EQ(session.buffers(), 0u);
  EXPECT_EQ(session.regions(), 1u);
  EXPECT_EQ(client.Register(RequestFor(request.ranges(0).buffer_id(), memory)).reason(),
            v1::BUFFER_UNKNOWN);
  // The descriptor and the mapping are gone; the region is not.
  Holdings expected = Look();
  EXPECT_EQ(expected.shared_mappings, baseline().shared_mappings);
  EXPECT_TRUE(client.Deregister({answer.response.leases(0).lease_id()}).ok());
}

TEST_P(RegistrationTest, ARefusedCallReleasesNothing) {
  StartThis();
  RawClient client(dir());
  const Memory memory(kPage);
  auto request = RequestFor(client.Pass(memory), memory.addr(), 2 * kPage);
  request.set_release_after(true);
  EXPECT_EQ(client.Register(request).reason(), v1::OUT_OF_RANGE);
  EXPECT_EQ(client.GetStatus().response.session().buffers(), 1u);
}

TEST_P(RegistrationTest, ReleaseBuffersLetsGoOfAllOrNone) {
  StartThis();
  RawClient client(dir());
  const Memory one(kPage);
  const Memory two(kPage);
  const uint64_t first = client.Pass(one);
  const uint64_t second = client.Pass(two);
  EXPECT_EQ(client.Release({first, 99, second}).reason(), v1::BUFFER_UNKNOWN);
  EXPECT_EQ(client.GetStatus().response.session().buffers(), 2u);
  EXPECT_TRUE(client.Release({first, second}).ok());
  EXPECT_EQ(client.GetStatus().response.session().buffers(), 0u);
  EXPECT_EQ(client.Release({first}).reason(), v1::BUFFER_UNKNOWN);
}

TEST_P(RegistrationTest, ABufferPassedInThePacketBeforeTheCallIsKnownToTheCall) {
  StartThis();
  RawClient client(dir());
  // No round trip in between: whoever takes the call must look into the attach socket first.
  for (int i = 0; i < 200; ++i) {
    const Memory memory(kPage);
    auto request = RequestFor(client.Pass(memory), memory);
    request.set_release_after(true);
    const auto answer = client.Register(request);
    ASSERT_TRUE(answer.ok()) << "in round " << i << ": " << answer.text();
  }
}

TEST_P(RegistrationTest, AFullPacketOfBuffersIsTaken) {
  StartThis();
  RawClient client(dir());
  const uint32_t most = client.welcome().limits().max_buffers_per_packet();
  ASSERT_GT(most, 0u);
  const Memory memory(kPage);
  std::vector<uint64_t> ids;
  v1::RegisterRequest request;
  request.mutable_access()->set_preset(v1::Access::REG_MSGS);
  for (uint32_t i = 1; i <= most; ++i) {
    ids.push_back(i);
    AddRange(&request, i, memory.addr(), kPage);
  }
  ASSERT_TRUE(client.attach().SendBuffers(ids, std::vector<int>(most, memory.fd())));
  const auto answer = client.Register(request);
  EXPECT_TRUE(answer.ok()) << answer.text();
  EXPECT_EQ(client.GetStatus().response.session().buffers(), most);
}

class SeveralDevicesTest : public DaemonTest {
 protected:
  SeveralDevicesTest() { Start({.fabric = "verbs", .devices = "devices=fake0,fake1,fake2"}); }
};

TEST_F(SeveralDevicesTest, ARangeIsRegisteredOnEachNamedDeviceAndBookedForEach) {
  RawClient client(dir());
  const Memory memory(2 * kPage);
  auto request = RequestFor(client.Pass(memory), memory);
  request.add_devices("fake2");
  request.add_devices("fake0");
  const auto answer = client.Register(request);
  ASSERT_TRUE(answer.ok()) << answer.text();
  ASSERT_EQ(answer.response.leases(0).keys_size(), 2);
  EXPECT_EQ(answer.response.leases(0).keys(0).device(), "fake2");
  EXPECT_EQ(answer.response.leases(0).keys(1).device(), "fake0");
  const auto session = client.GetStatus().response.session();
  EXPECT_EQ(session.regions(), 2u);
  EXPECT_EQ(session.leases(), 1u);
  EXPECT_EQ(session.pinned_bytes(), 4 * kPage);
}

TEST_F(SeveralDevicesTest, AllDevicesMeansEveryOne) {
  RawClient client(dir());
  const Memory memory(kPage);
  auto request = RequestFor(client.Pass(memory), memory);
  request.set_all_devices(true);
  const auto answer = client.Register(request);
  ASSERT_TRUE(answer.ok()) << answer.text();
  std::vector<std::string> names;
  for (const auto& key : answer.response.leases(0).keys()) names.push_back(key.device());
  EXPECT_THAT(names, testing::ElementsAre("fake0", "fake1", "fake2"));
}

TEST_F(SeveralDevicesTest, WhatOneDeviceRefusesNoDeviceKeeps) {
  RawClient client(dir());
  const Memory memory(4 * kPage);
  const uint64_t id = client.Pass(memory);
  auto request = RequestFor(id, memory.addr(), kPage);
  AddRange(&request, id, memory.addr() + kPage, kPage, kPage);
  request.set_all_devices(true);
  // The first use makes the domains.
  const auto first = client.Register(request);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(
      client.Deregister({first.response.leases(0).lease_id(), first.response.leases(1).lease_id()})
          .ok());
  const Holdings before = Look();
  daemon().Control("fail fake2 reg EINVAL@2");
  const auto answer = client.Register(request);
  EXPECT_EQ(answer.reason(), v1::DEVICE_ERROR) << answer.text();
  EXPECT_EQ(answer.detail.errno_name(), "EINVAL");
  EXPECT_EQ(Look(), before);
}

TEST_F(SeveralDevicesTest, WithoutANameTheFirstActiveDeviceIsTaken) {
  // fake0 of the fixture is active; a daemon whose first device is down takes the next.
  const DaemonProcess other({.fabric = "verbs", .devices = "devices=fake0,fake1;fake0.active=0"});
  RawClient client(other.dir());
  const Memory memory(kPage);
  EXPECT_EQ(client.RegisterAll(memory).keys(0).device(), "fake1");
  const auto devices = client.ListDevices().response;
  EXPECT_EQ(devices.devices(0).state(), v1::Device::DOWN);
  EXPECT_EQ(devices.devices(1).state(), v1::Device::ACTIVE);
}

}  // namespace
}  // namespace mrd::e2e
