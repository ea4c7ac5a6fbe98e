#include "daemon/memory/address_window.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "mrd/v1/status.h"
#include "tests/memory/memfd.h"

namespace mrd::memory {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr uint64_t kBase = kWindows[1].begin + (uint64_t{1} << 30);
#else
constexpr uint64_t kBase = kWindows[0].begin + (uint64_t{1} << 30);
#endif

std::chrono::steady_clock::time_point In(int milliseconds) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
}

TEST(AddressWindow, MapsAtTheClientsAddress) {
  Mappings mappings;
  const auto buffer = MakeBuffer(MakeMemfd(1 << 20), mappings);
  const auto use = buffer->MapAt(kBase + 8192, 8192, 4096, In(0));
  ASSERT_TRUE(use.ok()) << use.status();
  EXPECT_EQ(reinterpret_cast<uint64_t>((*use)->At(8192)), kBase + 8192);
}

TEST(AddressWindow, RefusesAddressesOutsideUnread) {
  Mappings mappings;
  const auto buffer = MakeBuffer(MakeMemfd(1 << 20), mappings);
  for (const uint64_t address : {uint64_t{4096}, uint64_t{0x7fff00000000}, kWindows[0].begin - 4096,
                                 kWindows[0].end - 4096, kWindows[1].end, UINT64_MAX - 4095}) {
    const auto use = buffer->MapAt(address, 0, 4096, In(0));
    EXPECT_EQ(ReasonOf(use.status()), v1::ADDRESS_UNUSABLE) << std::hex << address;
  }
  // The range lies inside, but the buffer would begin before the window, or before 0.
  EXPECT_EQ(ReasonOf(buffer->MapAt(kWindows[0].begin, 8192, 4096, In(0)).status()),
            v1::ADDRESS_UNUSABLE);
  EXPECT_EQ(ReasonOf(buffer->MapAt(4096, 8192, 4096, In(0)).status()), v1::ADDRESS_UNUSABLE);
}

TEST(AddressWindow, AnIdleMappingMakesWayForAnother) {
  Mappings mappings;
  const auto first = MakeBuffer(MakeMemfd(1 << 20), mappings);
  const auto second = MakeBuffer(MakeMemfd(1 << 20), mappings);
  ASSERT_TRUE(first->MapAt(kBase, 0, 4096, In(0)).ok());
  ASSERT_TRUE(second->MapAt(kBase + (1 << 19), 0, 4096, In(0)).ok());
  EXPECT_EQ(mappings.window.count(), 1u);
}

TEST(AddressWindow, AMappingInUseKeepsOthersWaitingUntilTheirDeadline) {
  Mappings mappings;
  const auto first = MakeBuffer(MakeMemfd(1 << 20), mappings);
  const auto second = MakeBuffer(MakeMemfd(1 << 20), mappings);
  auto use = std::make_optional(first->MapAt(kBase, 0, 4096, In(0)));
  ASSERT_TRUE((*use).ok());
  EXPECT_EQ(ReasonOf(second->MapAt(kBase, 0, 4096, In(10)).status()), v1::BUSY);
  std::atomic<bool> got = false;
  std::thread waiter([&] {
    const auto other = second->MapAt(kBase, 0, 4096, In(10000));
    got = other.ok();
  });
  use.reset();
  waiter.join();
  EXPECT_TRUE(got);
}

// Nobody is told that the place is taken while the one before is being unmapped.
TEST(AddressWindow, ManyAtOneAddressHaveTheirTurns) {
  constexpr uint64_t kSize = 8 << 20;
  Mappings mappings;
  std::atomic<int> refused = 0;
  const auto take_turns = [&] {
    const auto lasting = MakeBuffer(MakeMemfd(kSize), mappings);
    for (int i = 0; i < 40; ++i) {
      auto own = i % 2 == 0 ? MakeBuffer(MakeMemfd(1 << 20), mappings) : lasting;
      const auto use = own->MapAt(kBase, 0, 4096, In(60000));
      if (use.ok()) (*use)->Populate(0, own == lasting ? kSize : 1 << 20);
      refused += use.ok() ? 0 : 1;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(take_turns);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(refused, 0);
}

TEST(AddressWindow, TheSameMappingIsSharedByItsUsers) {
  Mappings mappings;
  const auto buffer = MakeBuffer(MakeMemfd(1 << 20), mappings);
  const auto first = buffer->MapAt(kBase, 0, 4096, In(0));
  const auto second = buffer->MapAt(kBase + 4096, 4096, 4096, In(0));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(&**first, &**second);
}

TEST(AddressWindow, AForgottenMappingGoesWithItsLastUse) {
  Mappings mappings;
  auto buffer = MakeBuffer(MakeMemfd(1 << 20), mappings);
  {
    const auto use = buffer->MapAt(kBase, 0, 4096, In(0));
    ASSERT_TRUE(use.ok());
    buffer.reset();
    EXPECT_EQ(mappings.window.count(), 1u);
  }
  EXPECT_EQ(mappings.window.count(), 0u);
  EXPECT_EQ(CountMappings(), 0u);
}

TEST(AddressWindow, KeepsAtMostSoManyIdleMappings) {
  Mappings mappings({.count = 3});
  std::vector<std::shared_ptr<Buffer>> buffers;
  for (int i = 0; i < 6; ++i) {
    buffers.push_back(MakeBuffer(MakeMemfd(4096), mappings));
    ASSERT_TRUE(buffers.back()->MapAt(kBase + i * 4096, 0, 4096, In(0)).ok());
  }
  EXPECT_EQ(mappings.window.count(), 3u);
}

TEST(AddressWindow, RefusesToLieOverSomethingElse) {
  Mappings mappings;
  void* other = mmap(reinterpret_cast<void*>(kBase), 4096, PROT_READ,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_NE(other, MAP_FAILED);
  const auto buffer = MakeBuffer(MakeMemfd(1 << 20), mappings);
  EXPECT_EQ(ReasonOf(buffer->MapAt(kBase, 0, 4096, In(0)).status()), v1::ADDRESS_UNUSABLE);
  munmap(other, 4096);
}

}  // namespace
}  // namespace mrd::memory
