#include "daemon/fabric/soft/soft_fabric.h"

#include <errno.h>

#include <set>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "mrd/v1/status.h"
#include "tests/fabric/peers.h"

namespace mrd::fabric {
namespace {

using testing::HasSubstr;

constexpr AccessMask kReadWrite =
    Bit(v1::LOCAL_WRITE) | Bit(v1::REMOTE_READ) | Bit(v1::REMOTE_WRITE);
constexpr uint64_t kAddress = 0x650000000000;

RegionSpec Page() {
  RegionSpec spec;
  spec.iova = kAddress;
  spec.length = 4096;
  spec.access = kReadWrite;
  spec.va = reinterpret_cast<void*>(0x7000000000);
  return spec;
}

class SoftFabricTest : public testing::Test {
 protected:
  SoftFabricTest() : domain_(*fabric_->CreateDomain("soft0")) {}

  absl::Status Refusal(const RegionSpec& spec) { return domain_->Register(spec).status(); }

  const std::unique_ptr<Fabric> fabric_ = MakeSoftFabric();
  const std::shared_ptr<Domain> domain_;
};

TEST_F(SoftFabricTest, ItHasOneDeviceThatSaysItIsSoft) {
  const auto devices = fabric_->Devices();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].name, "soft0");
  EXPECT_EQ(devices[0].transport, v1::Device::SOFT);
  EXPECT_TRUE(devices[0].active);
  EXPECT_TRUE(devices[0].endpoints);
  EXPECT_TRUE(devices[0].any_address);
  EXPECT_EQ(devices[0].max_region_bytes, uint64_t{1} << 40);
  EXPECT_EQ(devices[0].max_regions, 1u << 20);
  EXPECT_EQ(ReasonOf(fabric_->CreateDomain("rxe0").status()), v1::DEVICE_UNKNOWN);
}

TEST_F(SoftFabricTest, KeysInUseAreUniqueAndNeverZero) {
  std::set<uint32_t> keys;
  std::vector<std::unique_ptr<Region>> regions;
  for (int i = 0; i < 5000; ++i) {
    regions.push_back(*domain_->Register(Page()));
    keys.insert(regions.back()->lkey());
    keys.insert(regions.back()->rkey());
  }
  EXPECT_EQ(keys.size(), 10000u);
  EXPECT_EQ(keys.count(0), 0u);
  for (auto& region : regions) EXPECT_TRUE(region->Deregister().ok());
}

TEST_F(SoftFabricTest, AKeyIsNotUsedAgainSoon) {
  std::set<uint32_t> keys;
  for (int i = 0; i < 100000; ++i) {
    const auto region = *domain_->Register(Page());
    EXPECT_TRUE(keys.insert(region->rkey()).second) << i;
    EXPECT_TRUE(region->Deregister().ok());
  }
}

TEST_F(SoftFabricTest, LengthsThatItCannotHaveAreRefused) {
  RegionSpec spec = Page();
  spec.length = 0;
  EXPECT_EQ(ReasonOf(Refusal(spec)), v1::INVALID_LENGTH);
  for (const uint64_t length : {(uint64_t{1} << 40) + 1, UINT64_MAX}) {
    spec.length = length;
    const auto detail = DetailOf(Refusal(spec));
    ASSERT_TRUE(detail);
    EXPECT_EQ(detail->reason(), v1::DEVICE_LIMIT);
    EXPECT_EQ(detail->limit(), uint64_t{1} << 40);
    EXPECT_NE(detail->advice(), "");
  }
  spec.length = uint64_t{1} << 40;
  EXPECT_TRUE(domain_->Register(spec).ok());
}

TEST_F(SoftFabricTest, AccessIsCheckedAsVerbsDo) {
  RegionSpec spec = Page();
  spec.access = Bit(v1::REMOTE_WRITE);
  EXPECT_EQ(ReasonOf(Refusal(spec)), v1::ACCESS_INVALID);
  spec.access = Bit(v1::REMOTE_ATOMIC);
  EXPECT_EQ(ReasonOf(Refusal(spec)), v1::ACCESS_INVALID);
  spec.access = Bit(v1::LOCAL_WRITE) | 1u << 20;
  EXPECT_EQ(ReasonOf(Refusal(spec)), v1::ACCESS_INVALID);
  spec.access = Bit(v1::ON_DEMAND);
  EXPECT_EQ(ReasonOf(Refusal(spec)), v1::ACCESS_UNSUPPORTED);
  spec.access = 0;  // Local reads only.
  EXPECT_TRUE(domain_->Register(spec).ok());
}

TEST_F(SoftFabricTest, AddressesThatCannotBeAreRefused) {
  RegionSpec spec = Page();
  spec.iova = UINT64_MAX - 4095;  // Its last byte is that of the address space.
  EXPECT_TRUE(domain_->Register(spec).ok());
  spec.length = 4097;
  EXPECT_EQ(ReasonOf(Refusal(spec)), v1::ADDRESS_UNUSABLE);
  spec = Page();
  spec.iova += 8;
  EXPECT_EQ(ReasonOf(Refusal(spec)), v1::ADDRESS_UNUSABLE);
  spec = Page();
  spec.dma_buf_fd = 5;
  EXPECT_EQ(ReasonOf(Refusal(spec)), v1::UNSUPPORTED);
}

TEST_F(SoftFabricTest, TheRegionBeyondTheLastIsADeviceLimitWithLimitAndUsed) {
  std::vector<std::unique_ptr<Region>> regions;
  regions.reserve(1 << 20);
  for (int i = 0; i < 1 << 20; ++i) regions.push_back(*domain_->Register(Page()));
  const auto detail = DetailOf(Refusal(Page()));
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->reason(), v1::DEVICE_LIMIT);
  EXPECT_EQ(detail->limit(), 1u << 20);
  EXPECT_EQ(detail->used(), 1u << 20);
  EXPECT_TRUE(regions[77]->Deregister().ok());
  EXPECT_TRUE(domain_->Register(Page()).ok());
}

TEST_F(SoftFabricTest, ListenerAndConnectorMeetWhicheverComesFirst) {
  for (const bool accept_first : {true, false}) {
    auto listener = *fabric_->Listen("", 0, 4);
    EXPECT_NE(listener->info().local_port, 0u);
    EXPECT_EQ(listener->info().local_address, "127.0.0.1");
    Side a(domain_), c(domain_);
    if (accept_first) listener->Accept(a.Spec("from a"), a.Done());
    fabric_->Connect("localhost", listener->info().local_port, "", c.Spec("from c"), c.Done());
    if (!accept_first) listener->Accept(a.Spec("from a"), a.Done());
    ASSERT_TRUE(a.Wait().ok());
    ASSERT_TRUE(c.Wait().ok());
    EXPECT_EQ(a.established().private_data, "from c");
    EXPECT_EQ(c.established().private_data, "from a");
    EXPECT_EQ(a.info().local_port, c.info().peer_port);
    EXPECT_EQ(a.info().peer_port, c.info().local_port);
    EXPECT_EQ(a.info().device, "soft0");
    EXPECT_NE(a.info().qp_num, c.info().qp_num);
    EXPECT_EQ(a.asked_device(), "soft0");

    listener.reset();  // Connections stand.
    EXPECT_EQ(a.left_calls(), 0);
    (accept_first ? a : c).Disconnect();
    EXPECT_TRUE((accept_first ? c : a).WaitLeft());
    EXPECT_FALSE((accept_first ? c : a).left_error());
    (accept_first ? c : a).Disconnect();
    EXPECT_EQ(a.left_calls() + c.left_calls(), 1);
    EXPECT_EQ(a.done_calls(), 1);
    EXPECT_EQ(c.done_calls(), 1);
  }
}

TEST_F(SoftFabricTest, AcceptsTakeRequestsInTheOrderOfTheCalls) {
  auto listener = *fabric_->Listen("127.0.0.1", 7000, 4);
  Side a(domain_), b(domain_), c(domain_), d(domain_);
  listener->Accept(a.Spec(), a.Done());
  listener->Accept(b.Spec(), b.Done());
  fabric_->Connect("127.0.0.1", 7000, "", c.Spec("first"), c.Done());
  fabric_->Connect("::1", 7000, "::1", d.Spec("second"), d.Done());
  ASSERT_TRUE(a.Wait().ok() && b.Wait().ok() && c.Wait().ok() && d.Wait().ok());
  EXPECT_EQ(a.established().private_data, "first");
  EXPECT_EQ(b.established().private_data, "second");
  EXPECT_EQ(b.info().peer_address, "::1");
}

TEST_F(SoftFabricTest, APortInUseSaysEaddrinuse) {
  auto listener = *fabric_->Listen("127.0.0.1", 7000, 4);
  const auto detail = DetailOf(fabric_->Listen("::1", 7000, 4).status());
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->reason(), v1::CONNECTION_FAILED);
  EXPECT_EQ(detail->errno_value(), EADDRINUSE);
  listener.reset();
  EXPECT_TRUE(fabric_->Listen("::1", 7000, 4).ok());
}

TEST_F(SoftFabricTest, WhereNobodyListensTheConnectionIsRefused) {
  Side c(domain_);
  fabric_->Connect("127.0.0.1", 7000, "", c.Spec(), c.Done());
  const auto detail = DetailOf(c.Wait());
  ASSERT_TRUE(detail);
  EXPECT_EQ(detail->reason(), v1::CONNECTION_FAILED);
  EXPECT_EQ(detail->errno_value(), ECONNREFUSED);
}

TEST_F(SoftFabricTest, AddressesOfOthersAreRefused) {
  EXPECT_EQ(ReasonOf(fabric_->Listen("10.1.2.3", 0, 4).status()), v1::ADDRESS_INVALID);
  EXPECT_EQ(ReasonOf(fabric_->Listen("", 65536, 4).status()), v1::ADDRESS_INVALID);
  Side c(domain_), d(domain_);
  fabric_->Connect("10.1.2.3", 7000, "", c.Spec(), c.Done());
  EXPECT_EQ(ReasonOf(c.Wait()), v1::ADDRESS_INVALID);
  fabric_->Connect("", 7000, "nonsense", d.Spec(), d.Done());
  EXPECT_EQ(ReasonOf(d.Wait()), v1::ADDRESS_INVALID);
}

TEST_F(SoftFabricTest, PrivateDataBeyondWhatVerbsCarryIsRefused) {
  auto listener = *fabric_->Listen("", 0, 4);
  Side a(domain_), c(domain_);
  listener->Accept(a.Spec(std::string(197, 'x')), a.Done());
  EXPECT_EQ(ReasonOf(a.Wait()), v1::REQUEST_INVALID);
  fabric_->Connect("", listener->info().local_port, "", c.Spec(std::string(57, 'x')), c.Done());
  EXPECT_EQ(ReasonOf(c.Wait()), v1::REQUEST_INVALID);
}

TEST_F(SoftFabricTest, AnAcceptThatNobodyMeetsEndsAtItsDeadline) {
  auto listener = *fabric_->Listen("", 0, 4);
  Side a(domain_), c(domain_);
  listener->Accept(a.Spec("", std::chrono::milliseconds(20)), a.Done());
  EXPECT_EQ(ReasonOf(a.Wait()), v1::WAIT_ENDED);
  fabric_->Connect("", listener->info().local_port, "", c.Spec("", std::chrono::milliseconds(20)),
                   c.Done());
  EXPECT_EQ(ReasonOf(c.Wait()), v1::WAIT_ENDED);
  // Each is told what the other has not done.
  EXPECT_THAT(std::string(a.Wait().message()), HasSubstr("nobody came"));
  EXPECT_THAT(std::string(c.Wait().message()), HasSubstr("did not accept"));
}

TEST_F(SoftFabricTest, TheListenersEndAnswersAllThatWait) {
  auto listener = *fabric_->Listen("", 0, 4);
  Side a(domain_), c(domain_);
  listener->Accept(a.Spec(), a.Done());
  listener.reset();
  EXPECT_EQ(ReasonOf(a.Wait()), v1::ENDPOINT_UNKNOWN);

  listener = *fabric_->Listen("", 0, 4);
  fabric_->Connect("", listener->info().local_port, "", c.Spec(), c.Done());
  EXPECT_TRUE(c.Idle(std::chrono::milliseconds(20)));
  listener.reset();
  EXPECT_EQ(ReasonOf(c.Wait()), v1::CONNECTION_FAILED);
}

TEST_F(SoftFabricTest, RequestsBeyondTheBacklogAreRefused) {
  auto listener = *fabric_->Listen("", 0, 2);
  Side sides[] = {Side(domain_), Side(domain_), Side(domain_)};
  for (Side& side : sides) {
    fabric_->Connect("", listener->info().local_port, "", side.Spec(), side.Done());
  }
  const auto full = DetailOf(sides[2].Wait());
  ASSERT_TRUE(full);
  EXPECT_EQ(full->reason(), v1::CONNECTION_FAILED);
  EXPECT_THAT(full->limit_name(), HasSubstr("backlog"));
  EXPECT_EQ(full->limit(), 2u);
  EXPECT_EQ(full->used(), 2u);
  EXPECT_THAT(std::string(sides[2].Wait().message()), HasSubstr("backlog of 2"));
  listener.reset();
  EXPECT_EQ(ReasonOf(sides[0].Wait()), v1::CONNECTION_FAILED);
  EXPECT_EQ(ReasonOf(sides[1].Wait()), v1::CONNECTION_FAILED);
}

TEST_F(SoftFabricTest, AnAcceptThatIsNoLongerWantedTakesNoRequest) {
  auto listener = *fabric_->Listen("", 0, 4);
  Side gone(domain_), a(domain_), c(domain_);
  gone.set_wanted(false);
  listener->Accept(gone.Spec(), gone.Done());
  listener->Accept(a.Spec(), a.Done());
  fabric_->Connect("", listener->info().local_port, "", c.Spec(), c.Done());
  EXPECT_FALSE(gone.Wait().ok());
  EXPECT_TRUE(a.Wait().ok());
  EXPECT_TRUE(c.Wait().ok());
}

TEST_F(SoftFabricTest, ADomainThatCannotBeMadeEndsTheAttemptOnBothSides) {
  auto listener = *fabric_->Listen("", 0, 4);
  Side a(domain_), c(domain_);
  a.set_domain_error(MakeError(v1::QUOTA_ENDPOINTS, "too many"));
  listener->Accept(a.Spec(), a.Done());
  fabric_->Connect("", listener->info().local_port, "", c.Spec(), c.Done());
  EXPECT_EQ(ReasonOf(a.Wait()), v1::QUOTA_ENDPOINTS);
  EXPECT_EQ(ReasonOf(c.Wait()), v1::CONNECTION_FAILED);
}

TEST_F(SoftFabricTest, AConnectionDroppedInItsCallbackIsTheOthersLeaving) {
  auto listener = *fabric_->Listen("", 0, 4);
  Side a(domain_), c(domain_);
  listener->Accept(a.Spec(), [](absl::StatusOr<Established> result) {
    EXPECT_TRUE(result.ok());  // And is destroyed here, in the fabric's thread.
  });
  fabric_->Connect("", listener->info().local_port, "", c.Spec(), c.Done());
  EXPECT_TRUE(c.Wait().ok());
  EXPECT_TRUE(c.WaitLeft());
  EXPECT_EQ(c.left_calls(), 1);
}

TEST_F(SoftFabricTest, ManyThreadsConnectAndLeave) {
  auto listener = *fabric_->Listen("", 0, 128);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 100; ++j) {
        Side a(domain_), c(domain_);
        listener->Accept(a.Spec(), a.Done());
        fabric_->Connect("", listener->info().local_port, "", c.Spec(), c.Done());
        EXPECT_TRUE(a.Wait().ok());
        EXPECT_TRUE(c.Wait().ok());
        a.Disconnect();
        c.Disconnect();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace mrd::fabric
