#include "daemon/memory/buffer.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "mrd/v1/status.h"
#include "tests/memory/memfd.h"
#include "tests/memory/stalled_call.h"

namespace mrd::memory {
namespace {

constexpr uint64_t kSize = 1 << 20;
constexpr uint64_t kAddress = 0x650000000000;

class BufferTest : public testing::Test {
 protected:
  ~BufferTest() override {
    EXPECT_EQ(mappings_.cache.count(), 0u);
    EXPECT_EQ(mappings_.window.count(), 0u);
    EXPECT_EQ(CountMappings(), 0u);
  }

  v1::Reason Check(Buffer& buffer, uint64_t offset, uint64_t length, uint64_t address = kAddress) {
    const auto checked = buffer.Check(offset, length, address + offset, /*unsealed=*/false);
    if (!checked.ok()) return ReasonOf(checked);
    Buffer::Seen seen;
    return ReasonOf(CheckPresent(buffer, offset, length, &seen));
  }
  static absl::Status CheckPresent(Buffer& buffer, uint64_t offset, uint64_t length,
                                   Buffer::Seen* seen) {
    return buffer.CheckPresent(offset, length, seen, [] { return false; });
  }

  Mappings mappings_;
};

TEST_F(BufferTest, TakesARangeWithinIt) {
  const auto buffer = MakeBuffer(MakeMemfd(kSize), mappings_);
  EXPECT_TRUE(buffer->Check(0, kSize, kAddress, false).ok());
  EXPECT_TRUE(buffer->Check(kSize - 1, 1, kAddress + kSize - 1, false).ok());
}

TEST_F(BufferTest, RefusesLengthZero) {
  const auto buffer = MakeBuffer(MakeMemfd(kSize), mappings_);
  EXPECT_EQ(Check(*buffer, 0, 0), v1::INVALID_LENGTH);
}

TEST_F(BufferTest, RefusesWhatRunsOutOfItAndSaysItsSize) {
  const auto buffer = MakeBuffer(MakeMemfd(kSize), mappings_);
  EXPECT_EQ(Check(*buffer, 0, kSize + 1), v1::OUT_OF_RANGE);
  EXPECT_EQ(Check(*buffer, kSize, 1), v1::OUT_OF_RANGE);
  EXPECT_EQ(Check(*buffer, 4096, UINT64_MAX - 100), v1::OUT_OF_RANGE);
  EXPECT_EQ(Check(*buffer, UINT64_MAX - 4095, 8192, 4096), v1::OUT_OF_RANGE);
  const auto refusal = buffer->Check(0, UINT64_MAX, kAddress, false);
  EXPECT_EQ(ReasonOf(refusal), v1::OUT_OF_RANGE);
  EXPECT_EQ(DetailOf(refusal)->limit(), kSize);
}

TEST_F(BufferTest, SeesThatTheFileHasGrown) {
  UniqueFd fd = MakeMemfd(4096);
  const UniqueFd clients(dup(fd.get()));
  const auto buffer = MakeBuffer(std::move(fd), mappings_);
  EXPECT_EQ(Check(*buffer, 4096, 4096), v1::OUT_OF_RANGE);
  ASSERT_EQ(ftruncate(clients.get(), 8192), 0);
  EXPECT_EQ(Check(*buffer, 4096, 4096), v1::NOT_POPULATED);
  ASSERT_TRUE(Populate(clients.get(), 0, 8192));
  EXPECT_EQ(Check(*buffer, 4096, 4096), v1::REASON_UNSPECIFIED);
}

TEST_F(BufferTest, RefusesAddressesThatDoNotAgreeWithTheOffset) {
  const auto buffer = MakeBuffer(MakeMemfd(kSize), mappings_);
  EXPECT_EQ(Check(*buffer, 0, 4096, kAddress + 1), v1::MISALIGNED);
  EXPECT_TRUE(buffer->Check(100, 50, kAddress + 100, false).ok());
}

TEST_F(BufferTest, RefusesAnAddressAtTheEndOfTheAddressSpace) {
  const auto buffer = MakeBuffer(MakeMemfd(kSize), mappings_);
  EXPECT_EQ(ReasonOf(buffer->Check(0, 8192, UINT64_MAX - 4095, false)), v1::ADDRESS_UNUSABLE);
}

TEST_F(BufferTest, RefusesWhatCanShrinkUnlessPolicyAllows) {
  UniqueFd fd = MakeMemfd(kSize, true, 0);
  const UniqueFd clients(dup(fd.get()));
  const auto buffer = MakeBuffer(std::move(fd), mappings_);
  EXPECT_EQ(Check(*buffer, 0, 4096), v1::NOT_SEALED);
  EXPECT_TRUE(buffer->Check(0, 4096, kAddress, /*unsealed=*/true).ok());
  ASSERT_EQ(fcntl(clients.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(Check(*buffer, 0, 4096), v1::REASON_UNSPECIFIED);
}

TEST_F(BufferTest, RefusesWhatCannotBeWritten) {
  const auto sealed =
      MakeBuffer(MakeMemfd(kSize, true, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), mappings_);
  EXPECT_EQ(Check(*sealed, 0, 4096), v1::BUFFER_READ_ONLY);
  const UniqueFd fd = MakeMemfd(kSize);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd.get());
  const auto read_only = MakeBuffer(UniqueFd(open(path, O_RDONLY | O_CLOEXEC)), mappings_);
  EXPECT_EQ(Check(*read_only, 0, 4096), v1::BUFFER_READ_ONLY);
}

TEST_F(BufferTest, SeesThatTheFileHasShrunkBeforeItWasSealed) {
  UniqueFd fd = MakeMemfd(8192, /*populate=*/true, /*seals=*/0);
  const UniqueFd clients(dup(fd.get()));
  const auto buffer = MakeBuffer(std::move(fd), mappings_);
  ASSERT_EQ(ftruncate(clients.get(), 4096), 0);
  ASSERT_EQ(fcntl(clients.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(Check(*buffer, 0, 8192), v1::OUT_OF_RANGE);
  EXPECT_EQ(Check(*buffer, 0, 4096), v1::REASON_UNSPECIFIED);
}

TEST_F(BufferTest, RefusesAbsentPagesAndLeavesTheFileOffsetAlone) {
  UniqueFd fd = MakeMemfd(kSize);
  const UniqueFd clients(dup(fd.get()));
  ASSERT_EQ(fallocate(clients.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 4096), 0);
  ASSERT_EQ(lseek(clients.get(), 1234, SEEK_SET), 1234);
  const auto buffer = MakeBuffer(std::move(fd), mappings_);
  EXPECT_EQ(Check(*buffer, 0, 8192), v1::REASON_UNSPECIFIED);
  EXPECT_EQ(Check(*buffer, 0, 8193), v1::NOT_POPULATED);
  EXPECT_EQ(Check(*buffer, 12288, 4096), v1::REASON_UNSPECIFIED);
  EXPECT_EQ(lseek(clients.get(), 0, SEEK_CUR), 1234);
}

TEST_F(BufferTest, SeesPagesComeAndGoInASealedFile) {
  // Pages beyond the end, made before the seal, are no substitute for one that is absent.
  UniqueFd fd = MakeMemfd(kSize, /*populate=*/true, /*seals=*/0);
  ASSERT_EQ(fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, kSize, 8192), 0);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  const UniqueFd clients(dup(fd.get()));
  const auto punch = [&] {
    return fallocate(clients.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 4096);
  };
  ASSERT_EQ(punch(), 0);
  const auto buffer = MakeBuffer(std::move(fd), mappings_);
  EXPECT_EQ(Check(*buffer, 0, kSize), v1::NOT_POPULATED);
  ASSERT_TRUE(Populate(clients.get(), 8192, 4096));
  EXPECT_EQ(Check(*buffer, 0, kSize), v1::REASON_UNSPECIFIED);
  EXPECT_EQ(Check(*buffer, 4096, kSize - 4096), v1::REASON_UNSPECIFIED);
  ASSERT_EQ(punch(), 0);
  EXPECT_EQ(Check(*buffer, 8192, 1), v1::NOT_POPULATED);
  EXPECT_EQ(Check(*buffer, 12288, 4096), v1::REASON_UNSPECIFIED);
}

// S18: a client can hold a file's lock for ever. Nothing that the check asks for needs it.
TEST_F(BufferTest, ChecksWaitForNoLockOfTheFile) {
  UniqueFd fd = MakeMemfd(kSize);
  const UniqueFd clients(dup(fd.get()));
  ASSERT_EQ(fallocate(clients.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 65536, 4096), 0);
  const auto buffer = MakeBuffer(std::move(fd), mappings_);
  const StalledCall write([&](void* page) {
    // The result does not matter: the page comes, as zeroes, at the end.
    [[maybe_unused]] const ssize_t written = pwrite(clients.get(), page, 1, 0);
  });
  ASSERT_TRUE(write.waits());
  EXPECT_EQ(Check(*buffer, 0, 4096), v1::REASON_UNSPECIFIED);
  EXPECT_EQ(Check(*buffer, 0, kSize), v1::NOT_POPULATED);
}

// mincore(2) tells it that all is there.
TEST_F(BufferTest, ADaemonThatMayNotWriteTheFileTakesNoPageForPresent) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  UniqueFd fd = MakeMemfd(kSize, /*populate=*/false);
  ASSERT_EQ(fchmod(fd.get(), 0600), 0);
  const auto buffer = MakeBuffer(std::move(fd), mappings_);
  const pid_t child = fork();
  if (child == 0) {
    _exit(setuid(65533) == 0 && Check(*buffer, 0, kSize) == v1::NOT_POPULATED ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(BufferTest, LooksOnceForThePagesOfACall) {
  UniqueFd fd = MakeMemfd(kSize);
  const UniqueFd clients(dup(fd.get()));
  ASSERT_EQ(fallocate(clients.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 65536, 4096), 0);
  const auto buffer = MakeBuffer(std::move(fd), mappings_);
  Buffer::Seen seen;
  EXPECT_TRUE(CheckPresent(*buffer, 4096, 8192, &seen).ok());
  EXPECT_EQ(seen.begin, 4096u);
  EXPECT_EQ(seen.end, 12288u);
  // Of a range that overlaps or joins it only the rest is looked for: of these the page seen above
  // has gone.
  ASSERT_EQ(fallocate(clients.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 8192, 4096), 0);
  EXPECT_TRUE(CheckPresent(*buffer, 0, 16384, &seen).ok());
  EXPECT_TRUE(CheckPresent(*buffer, 16384, 4096, &seen).ok());
  EXPECT_EQ(seen.begin, 0u);
  EXPECT_EQ(seen.end, 20480u);
  EXPECT_EQ(ReasonOf(CheckPresent(*buffer, 61440, 8192, &seen)), v1::NOT_POPULATED);
  EXPECT_EQ(ReasonOf(CheckPresent(*buffer, 0, 65540, &seen)), v1::NOT_POPULATED);
  EXPECT_EQ(seen.end, 20480u) << "a refusal leaves it";
  EXPECT_TRUE(CheckPresent(*buffer, 61440, 4096, &seen).ok());
  EXPECT_EQ(seen.begin, 61440u) << "it lies apart";
  ASSERT_TRUE(Populate(clients.get(), 0, kSize));
  EXPECT_TRUE(CheckPresent(*buffer, 61440, 8192, &seen).ok());
  EXPECT_EQ(seen.begin, 0u);
  EXPECT_EQ(seen.end, kSize);
}

TEST_F(BufferTest, LooksNoFurtherThanAskedFor) {
  UniqueFd fd = MakeMemfd(64 << 20);
  ASSERT_EQ(fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), 0);
  const auto buffer = MakeBuffer(std::move(fd), mappings_);
  Buffer::Seen seen;
  int asked = 0;
  const auto stop = [&] { return ++asked == 2; };
  EXPECT_TRUE(absl::IsCancelled(buffer->CheckPresent(4096, (64 << 20) - 4096, &seen, stop)));
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(seen.end, 0u);
}

TEST_F(BufferTest, ChecksMakeNoPages) {
  UniqueFd fd = MakeMemfd(kSize, /*populate=*/false);
  const UniqueFd clients(dup(fd.get()));
  const auto buffer = MakeBuffer(std::move(fd), mappings_);
  EXPECT_EQ(Check(*buffer, 0, kSize), v1::NOT_POPULATED);
  EXPECT_EQ(lseek(clients.get(), 0, SEEK_DATA), -1);
}

TEST_F(BufferTest, IsMappedOnceWhole) {
  const auto buffer = MakeBuffer(MakeMemfd(kSize), mappings_);
  const auto first = buffer->Map(0, 4096);
  const auto second = buffer->Map(kSize - 4096, 4096);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->get(), second->get());
  EXPECT_EQ(CountMappings(), 1u);
  EXPECT_TRUE(buffer->IsMapped(0, kSize));
}

TEST_F(BufferTest, PopulatesOnlyWhatIsAskedFor) {
  UniqueFd fd = MakeMemfd(8 << 20, /*populate=*/false);
  const UniqueFd clients(dup(fd.get()));
  ASSERT_TRUE(Populate(clients.get(), 1 << 20, 1 << 20));
  const auto buffer = MakeBuffer(std::move(fd), mappings_);
  const auto mapping = buffer->Map(1 << 20, 1 << 20);
  ASSERT_TRUE(mapping.ok());
  (*mapping)->Populate(1 << 20, 1 << 20);
  EXPECT_EQ(lseek(clients.get(), 0, SEEK_DATA), 1 << 20);
  EXPECT_EQ(lseek(clients.get(), 1 << 20, SEEK_HOLE), 2 << 20);
}

}  // namespace
}  // namespace mrd::memory
