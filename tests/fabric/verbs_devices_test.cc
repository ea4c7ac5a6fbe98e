#include <errno.h>

#include <thread>

#include "gmock/gmock.h"
#include "tests/fabric/verbs_fixture.h"

namespace mrd::fabric {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class VerbsDevices : public VerbsTest {};

TEST_F(VerbsDevices, AHostWithoutDevicesIsAnErrorThatNamesTheSoftFabric) {
  fake_ = std::make_unique<fake::FakeVerbs>("");
  const auto detail = Detail(MakeVerbsFabric(*fake_).status());
  EXPECT_EQ(detail.reason(), v1::DEVICE_UNKNOWN);
  EXPECT_THAT(detail.advice(), HasSubstr("--fabric=soft"));
}

TEST_F(VerbsDevices, AServiceWaitsForTheFirstDevice) {
  fake_ = std::make_unique<fake::FakeVerbs>("devices=fake0");
  fake_->Remove("fake0");
  auto fabric = MakeVerbsFabric(*fake_, NoDevice::kIsAWait);
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  EXPECT_THAT((*fabric)->Devices(), ElementsAre());
  EXPECT_EQ(Detail((*fabric)->CreateDomain("fake0").status()).reason(), v1::DEVICE_UNKNOWN);
  fake_->Add("fake0");
  ASSERT_EQ((*fabric)->Refresh().added.size(), 1u);
  EXPECT_TRUE((*fabric)->CreateDomain("fake0").ok());
}

TEST_F(VerbsDevices, DevicesThatCannotBeOpenedAreAnErrorWithTheErrno) {
  fake_ = std::make_unique<fake::FakeVerbs>("devices=fake0;fake0.open_errno=EACCES");
  const auto detail = Detail(MakeVerbsFabric(*fake_).status());
  EXPECT_EQ(detail.reason(), v1::DEVICE_ERROR);
  EXPECT_EQ(detail.errno_name(), "EACCES");
  EXPECT_THAT(detail.advice(), HasSubstr("--fabric=soft"));
}

TEST_F(VerbsDevices, ADeviceThatFailsIsLeftOutAndTheOthersServe) {
  Start("devices=bad,fake0,worse;bad.open_errno=EPERM;worse.query_errno=EIO");
  const auto devices = fabric_->Devices();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "fake0");
}

TEST_F(VerbsDevices, DevicesAreListedByNameWithWhatTheyCanDo) {
  Start(
      "devices=roce,ib,iw;iw.transport=iwarp;ib.transport=ib;ib.odp=1;ib.active=0;"
      "roce.max_mr=77;roce.dma_buf=1;roce.max_mr_size=1000000");
  const auto devices = fabric_->Devices();
  ASSERT_EQ(devices.size(), 3u);
  const DeviceInfo& ib = devices[0];
  const DeviceInfo& iw = devices[1];
  const DeviceInfo& roce = devices[2];

  EXPECT_EQ(ib.name, "ib");
  EXPECT_EQ(ib.transport, v1::Device::INFINIBAND);
  EXPECT_FALSE(ib.active);
  EXPECT_TRUE(ib.any_address);
  EXPECT_TRUE(ib.access & Bit(v1::ON_DEMAND));
  EXPECT_TRUE(ib.access & Bit(v1::REMOTE_ATOMIC));
  EXPECT_FALSE(ib.dma_buf);
  EXPECT_THAT(ib.addresses, ElementsAre("10.99.1.1"));  // IPoIB's interface.

  EXPECT_EQ(iw.transport, v1::Device::IWARP);
  EXPECT_FALSE(iw.any_address);
  EXPECT_FALSE(iw.access & Bit(v1::REMOTE_ATOMIC));
  EXPECT_THAT(iw.addresses, ElementsAre("10.99.2.1"));

  EXPECT_EQ(roce.transport, v1::Device::ROCE);
  EXPECT_TRUE(roce.active);
  EXPECT_TRUE(roce.endpoints);
  EXPECT_TRUE(roce.dma_buf);
  EXPECT_FALSE(roce.access & Bit(v1::ON_DEMAND));
  EXPECT_EQ(roce.max_regions, 77u);
  EXPECT_EQ(roce.max_region_bytes, 1000000u);
  EXPECT_EQ(roce.generation, 1u);
  EXPECT_THAT(roce.addresses, ElementsAre("10.99.0.1"));  // And not the link-local one.
}

TEST_F(VerbsDevices, AnIPv6AddressIsListedAsText) {
  Start("devices=fake0;fake0.address=2001:db8::1");
  EXPECT_THAT(fabric_->Devices()[0].addresses, ElementsAre("2001:db8::1"));
}

TEST_F(VerbsDevices, ADeviceThatRdmaCmDoesNotKnowRegistersAndHasNoEndpoints) {
  Start("devices=fake0,other;other.endpoints=0");
  const auto devices = fabric_->Devices();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_TRUE(devices[0].endpoints);
  EXPECT_FALSE(devices[1].endpoints);
  const auto domain = MakeDomain("other");
  const auto region = domain->Register(Page());
  ASSERT_TRUE(region.ok());
  EXPECT_TRUE((*region)->Deregister().ok());
}

TEST_F(VerbsDevices, DomainsBeyondTheDevicesLimitSayLimitAndUsed) {
  Start("devices=fake0;fake0.max_pd=2");
  const auto one = MakeDomain(), two = MakeDomain();
  const auto detail = Detail(fabric_->CreateDomain("fake0").status());
  EXPECT_EQ(detail.reason(), v1::DEVICE_LIMIT);
  EXPECT_EQ(detail.errno_name(), "ENOMEM");
  EXPECT_EQ(detail.limit_name(), "max_pd of device fake0");
  EXPECT_EQ(detail.limit(), 2u);
  EXPECT_EQ(detail.used(), 2u);
}

TEST_F(VerbsDevices, ADomainOnNoDeviceOrAVanishedOneSaysSo) {
  Start("devices=fake0");
  EXPECT_EQ(Detail(fabric_->CreateDomain("rxe9").status()).reason(), v1::DEVICE_UNKNOWN);
  fake_->Unplug("fake0");
  const auto detail = Detail(fabric_->CreateDomain("fake0").status());
  EXPECT_EQ(detail.reason(), v1::DEVICE_REMOVED);
  EXPECT_EQ(detail.errno_name(), "EIO");
}

TEST_F(VerbsDevices, AVanishedDeviceCostsNoProcessorTime) {
  Start("devices=fake0");
  fake_->Unplug("fake0");
  for (int i = 0; i < 20000 && fake_->AsyncReads("fake0") == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(fake_->AsyncReads("fake0"), 1u);
}

}  // namespace
}  // namespace mrd::fabric
