#include <errno.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "tests/fabric/verbs_fixture.h"

namespace mrd::fabric {
namespace {

using testing::HasSubstr;

class VerbsRegister : public VerbsTest {
 protected:
  // What a registration that fails with `fault` is refused with.
  v1::ErrorDetail RefusalOf(const std::string& fault, const RegionSpec& spec = Page()) {
    fake_->Fail("fake0", "reg", fault);
    return Detail(MakeDomain()->Register(spec).status());
  }
};

TEST_F(VerbsRegister, ARegionHasItsKeysAndEndsWithDeregister) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto region = *domain->Register(Page());
  EXPECT_NE(region->lkey(), 0u);
  EXPECT_NE(region->rkey(), 0u);
  EXPECT_EQ(fake_->live().mrs, 1);
  EXPECT_TRUE(region->Deregister().ok());
  EXPECT_EQ(fake_->live().mrs, 0);
  EXPECT_TRUE(region->Deregister().ok());  // A second time: it has ended.
}

TEST_F(VerbsRegister, NoMemoryIsPinnedForWhatTheDeviceCannotDo) {
  Start("devices=fake0;fake0.max_mr_size=1048576;fake0.atomics=0");
  const auto domain = MakeDomain();
  RegionSpec spec = Page();
  spec.length = 0;
  EXPECT_EQ(Detail(domain->Register(spec).status()).reason(), v1::INVALID_LENGTH);
  for (const uint64_t length : {uint64_t{1048577}, UINT64_MAX}) {
    spec.length = length;
    const auto detail = Detail(domain->Register(spec).status());
    EXPECT_EQ(detail.reason(), v1::DEVICE_LIMIT);
    EXPECT_EQ(detail.limit(), 1048576u);
    EXPECT_EQ(detail.limit_name(), "max_mr_size of device fake0");
  }
  spec = Page();
  spec.access = Bit(v1::REMOTE_WRITE);
  EXPECT_EQ(Detail(domain->Register(spec).status()).reason(), v1::ACCESS_INVALID);
  spec.access = kReadWrite | 1u << 31;
  EXPECT_EQ(Detail(domain->Register(spec).status()).reason(), v1::ACCESS_INVALID);
  spec.access = kReadWrite | Bit(v1::REMOTE_ATOMIC);
  const auto atomic = Detail(domain->Register(spec).status());
  EXPECT_EQ(atomic.reason(), v1::ACCESS_UNSUPPORTED);
  spec.access = kReadWrite | Bit(v1::ON_DEMAND);
  EXPECT_EQ(Detail(domain->Register(spec).status()).reason(), v1::ACCESS_UNSUPPORTED);
  spec = Page();
  spec.va = reinterpret_cast<void*>(kAddress + 1);
  EXPECT_EQ(Detail(domain->Register(spec).status()).reason(), v1::ADDRESS_UNUSABLE);
  EXPECT_EQ(fake_->live().mrs, 0);

  spec = Page();
  spec.access = kReadWrite | Bit(v1::RELAXED_ORDERING) | Bit(v1::HUGETLB);
  EXPECT_TRUE(domain->Register(spec).ok());
}

TEST_F(VerbsRegister, ADeviceThatIgnoresIovaRegistersOnlyAtTheClientsAddress) {
  Start("devices=fake0;fake0.transport=iwarp");
  const auto domain = MakeDomain();
  EXPECT_TRUE(domain->Register(Page()).ok());
  RegionSpec elsewhere = Page();
  elsewhere.va = reinterpret_cast<void*>(kAddress + 4096);
  EXPECT_EQ(Detail(domain->Register(elsewhere).status()).reason(), v1::ADDRESS_UNUSABLE);
}

TEST_F(VerbsRegister, LengthsThatSiwLetsPassAreRefused) {
  Start("devices=fake0;fake0.transport=iwarp");
  RegionSpec spec = Page();
  spec.length = UINT64_MAX;
  EXPECT_EQ(Detail(MakeDomain()->Register(spec).status()).reason(), v1::DEVICE_LIMIT);
}

TEST_F(VerbsRegister, EnomemBeyondMemlockSaysMemlockWithLimitAndUsed) {
  Start("devices=fake0");
  fake_->SetMemlock(65536, 61440 + 1024, false);
  const auto detail = RefusalOf("ENOMEM");
  EXPECT_EQ(detail.reason(), v1::MEMLOCK);
  EXPECT_EQ(detail.errno_name(), "ENOMEM");
  EXPECT_EQ(detail.limit_name(), "RLIMIT_MEMLOCK of the daemon");
  EXPECT_EQ(detail.limit(), 65536u);
  EXPECT_EQ(detail.used(), 62464u);
  EXPECT_THAT(detail.advice(), HasSubstr("CAP_IPC_LOCK"));
}

TEST_F(VerbsRegister, EnomemWithinMemlockOrWithIpcLockIsNotMemlock) {
  Start("devices=fake0");
  fake_->SetMemlock(65536, 61440, false);  // One page is left.
  EXPECT_EQ(RefusalOf("ENOMEM").reason(), v1::DEVICE_LIMIT);
  fake_->SetMemlock(65536, 65536, true);
  EXPECT_EQ(RefusalOf("ENOMEM").reason(), v1::DEVICE_LIMIT);
  fake_->SetMemlock(UINT64_MAX, 65536, false);
  EXPECT_EQ(RefusalOf("ENOMEM").reason(), v1::DEVICE_LIMIT);
}

TEST_F(VerbsRegister, SiwEnforcesMemlockInSpiteOfIpcLock) {
  Start("devices=fake0;fake0.transport=iwarp");
  fake_->SetMemlock(65536, 65536, true);
  const auto detail = RefusalOf("ENOMEM");
  EXPECT_EQ(detail.reason(), v1::MEMLOCK);
  EXPECT_THAT(detail.advice(), HasSubstr("LimitMEMLOCK=infinity"));
}

TEST_F(VerbsRegister, APartOfAPageCountsAsAWholeOne) {
  Start("devices=fake0");
  fake_->SetMemlock(65536, 65536 - 4096, false);
  RegionSpec spec = Page();  // Two bytes on two pages.
  spec.iova += 4095;
  spec.va = reinterpret_cast<void*>(kAddress + 4095);
  spec.length = 2;
  EXPECT_EQ(RefusalOf("ENOMEM", spec).reason(), v1::MEMLOCK);
}

TEST_F(VerbsRegister, RegionsBeyondTheDevicesLimitSayLimitAndUsed) {
  Start("devices=fake0;fake0.max_mr=3");
  const auto domain = MakeDomain();
  std::vector<std::unique_ptr<Region>> regions;
  for (int i = 0; i < 3; ++i) regions.push_back(*domain->Register(Page()));
  const auto detail = Detail(domain->Register(Page()).status());
  EXPECT_EQ(detail.reason(), v1::DEVICE_LIMIT);
  EXPECT_EQ(detail.errno_name(), "ENOMEM");
  EXPECT_EQ(detail.limit_name(), "max_mr of device fake0");
  EXPECT_EQ(detail.limit(), 3u);
  EXPECT_EQ(detail.used(), 3u);
  EXPECT_TRUE(regions[1]->Deregister().ok());
  EXPECT_TRUE(domain->Register(Page()).ok());
}

TEST_F(VerbsRegister, ErrnoDecidesTheReason) {
  const struct {
    const char* error;
    v1::Reason reason;
  } kCases[] = {
      {"EFAULT", v1::ADDRESS_UNUSABLE}, {"EINVAL", v1::DEVICE_ERROR},
      {"EOPNOTSUPP", v1::UNSUPPORTED},  {"EIO", v1::DEVICE_REMOVED},
      {"ENODEV", v1::DEVICE_REMOVED},   {"EACCES", v1::DEVICE_ERROR},
      {"EPERM", v1::DEVICE_ERROR},      {"ENOSPC", v1::DEVICE_LIMIT},
      {"EINTR", v1::DEVICE_ERROR},      {"EAGAIN", v1::DEVICE_LIMIT},
  };
  Start("devices=fake0");
  for (const auto& test : kCases) {
    const auto detail = RefusalOf(test.error);
    EXPECT_EQ(detail.reason(), test.reason) << test.error;
    EXPECT_EQ(detail.errno_name(), test.error);
  }
}

// Peers reach it still: the client must not be told that it has ended.
TEST_F(VerbsRegister, ARegionThatADeviceRefusesToEndWithEioStandsUnlessTheDeviceIsGone) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto region = *domain->Register(Page());
  fake_->Fail("fake0", "dereg", "EIO@1");
  const auto detail = Detail(region->Deregister());
  EXPECT_EQ(detail.reason(), v1::DEVICE_ERROR);
  EXPECT_EQ(detail.errno_name(), "EIO");
  EXPECT_EQ(fake_->live().mrs, 1);
  EXPECT_TRUE(region->Deregister().ok());
  EXPECT_EQ(fake_->live().mrs, 0);
  region = *domain->Register(Page());
  fake_->Unplug("fake0");
  EXPECT_TRUE(region->Deregister().ok());
}

TEST_F(VerbsRegister, EinvalWithASpecialFlagBlamesTheFlag) {
  Start("devices=fake0");
  RegionSpec spec = Page();
  spec.access |= Bit(v1::HUGETLB);
  const auto detail = RefusalOf("EINVAL", spec);
  EXPECT_EQ(detail.reason(), v1::ACCESS_UNSUPPORTED);
  EXPECT_THAT(detail.advice(), HasSubstr("HUGETLB"));
}

TEST_F(VerbsRegister, DmaBufsGoToDevicesThatTakeThem) {
  Start("devices=fake0,buf0;buf0.dma_buf=1");
  RegionSpec spec = Page();
  spec.va = nullptr;
  spec.dma_buf_fd = 9;
  const auto detail = Detail(MakeDomain()->Register(spec).status());
  EXPECT_EQ(detail.reason(), v1::UNSUPPORTED);
  EXPECT_EQ(detail.errno_name(), "EOPNOTSUPP");
  EXPECT_TRUE(MakeDomain("buf0")->Register(spec).ok());
}

TEST_F(VerbsRegister, ARegionThatDoesNotEndStandsAndTheCallMayBeRepeated) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto region = *domain->Register(Page());
  fake_->Fail("fake0", "dereg", "EBUSY@1");
  const auto detail = Detail(region->Deregister());
  EXPECT_EQ(detail.reason(), v1::DEVICE_ERROR);
  EXPECT_EQ(detail.errno_name(), "EBUSY");
  EXPECT_EQ(fake_->live().mrs, 1);
  EXPECT_TRUE(region->Deregister().ok());
  EXPECT_EQ(fake_->live().mrs, 0);
}

TEST_F(VerbsRegister, TheRegionsOfAVanishedDeviceHaveEnded) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto region = *domain->Register(Page());
  fake_->Unplug("fake0");
  EXPECT_TRUE(region->Deregister().ok());
  EXPECT_EQ(Detail(domain->Register(Page()).status()).reason(), v1::DEVICE_REMOVED);
}

TEST_F(VerbsRegister, ASlowDeviceDelaysNoOther) {
  Start("devices=fake0,slow0;slow0.reg_delay_ms=2000");
  const auto fast = MakeDomain("fake0");
  const auto slow = MakeDomain("slow0");
  std::atomic<bool> ended = false;
  std::thread thread([&] {
    EXPECT_TRUE(slow->Register(Page()).ok());
    ended = true;
  });
  // Whatever the load of this machine: all of these together take less time than that one.
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(fast->Register(Page()).ok());
    EXPECT_TRUE(fabric_->CreateDomain("slow0").ok());
    EXPECT_EQ(fabric_->Devices().size(), 2u);
  }
  EXPECT_FALSE(ended);
  thread.join();
}

TEST_F(VerbsRegister, ManyThreadsRegisterAtOnce) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 5000; ++j) EXPECT_TRUE((*domain->Register(Page()))->Deregister().ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace mrd::fabric
