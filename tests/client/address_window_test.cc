#include "client/address_window.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "client/unique_fd.h"
#include "mrd/v1/status.h"

namespace mrd::internal {
namespace {

constexpr uint64_t kPage = 4096;

TEST(PickAddress, StaysInTheWindowForAnyRandom) {
  const AddressWindow window = {0x10000, 0x1ffff};
  for (const uint64_t random : {uint64_t{0}, uint64_t{1}, uint64_t{12345}, UINT64_MAX}) {
    for (const uint64_t size : {uint64_t{1}, kPage, 3 * kPage, uint64_t{0x10000}}) {
      const uint64_t address = PickAddress(window, size, kPage, random);
      EXPECT_GE(address, window.first);
      EXPECT_LE(address + size - 1, window.last);
      EXPECT_EQ(address % kPage, 0u);
    }
  }
}

TEST(PickAddress, ReachesBothEnds) {
  const AddressWindow window = {0x10000, 0x1ffff};
  EXPECT_EQ(PickAddress(window, kPage, kPage, 0), 0x10000u);
  EXPECT_EQ(PickAddress(window, kPage, kPage, 15), 0x1f000u);
}

TEST(PickAddress, SaysWhenThereIsNoRoom) {
  EXPECT_EQ(PickAddress({0x10000, 0x1ffff}, 0x10001, kPage, 0), 0u);
  EXPECT_EQ(PickAddress({0x10001, 0x1ffff}, 0x10000, kPage, 0), 0u);
  // Fits, but not at the alignment.
  EXPECT_EQ(PickAddress({0x1000, 0x1fffff}, 0x1000, 0x200000, 7), 0u);
}

TEST(WindowOfProgram, IsWhatTheDaemonKeepsFree) {
  const AddressWindow window = WindowOfProgram();
#ifdef __SANITIZE_THREAD__
  EXPECT_EQ(window.first, 0x7e8000000000u);
  EXPECT_EQ(window.last, 0x7effffffffffu);
#else
  EXPECT_EQ(window.first, 0x650000000000u);
  EXPECT_EQ(window.last, 0x6fffffffffffu);
#endif
}

class MapInWindowTest : public ::testing::Test {
 protected:
  MapInWindowTest() : fd_(memfd_create("test", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(fd_.get(), 16 * kPage), 0);
  }
  // A window of `pages` at a place that is free.
  AddressWindow Window(uint64_t pages) const {
    const uint64_t first = PickAddress(WindowOfProgram(), pages * kPage, kPage, 987654321);
    return {first, first + pages * kPage - 1};
  }
  UniqueFd fd_;
};

TEST_F(MapInWindowTest, OverwritesNoMapping) {
  const AddressWindow window = Window(4);
  void* const middle = reinterpret_cast<void*>(window.first + kPage);
  ASSERT_EQ(mmap(middle, 2 * kPage, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
            middle);
  *static_cast<char*>(middle) = 'x';
  // The first and the last page are left.
  auto a = MapInWindow(window, fd_.get(), kPage, kPage, PROT_READ, 0);
  auto b = MapInWindow(window, fd_.get(), kPage, kPage, PROT_READ, 0);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status() << b.status();
  EXPECT_NE(*a, *b);
  EXPECT_EQ(*static_cast<char*>(middle), 'x');
  EXPECT_FALSE(MapInWindow(window, fd_.get(), kPage, kPage, PROT_READ, 0).ok());
  munmap(reinterpret_cast<void*>(window.first), 4 * kPage);
}

TEST_F(MapInWindowTest, TellsWhyTheKernelRefused) {
  const auto mapped = MapInWindow(Window(4), /*fd=*/-1, kPage, kPage, PROT_READ, 0);
  ASSERT_FALSE(mapped.ok());
  EXPECT_EQ(DetailOf(mapped.status())->errno_value(), EBADF);
}

}  // namespace
}  // namespace mrd::internal
