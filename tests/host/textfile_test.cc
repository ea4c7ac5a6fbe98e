#include "daemon/host/metrics/textfile.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "tests/host/captured_log.h"
#include "tests/host/temporary_dir.h"

namespace mrd::host {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kPatience{20};

bool WaitUntil(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

TEST(TextfileTest, AReaderSeesAllOfTheOldOrAllOfTheNew) {
  TemporaryDir dir;
  const std::string path = dir / "mrd.prom";
  const std::string texts[] = {std::string(1 << 20, 'a'), std::string(2 << 20, 'b')};
  ASSERT_TRUE(ReplaceFile(path, texts[0]).ok());
  std::atomic<bool> over = false;
  std::thread reader([&] {
    while (!over) {
      const std::string seen = ReadAll(path);
      ASSERT_TRUE(seen == texts[0] || seen == texts[1]) << seen.size();
    }
  });
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(ReplaceFile(path, texts[i % 2]).ok());
  over = true;
  reader.join();
  EXPECT_EQ(dir.files(), 1u) << "no temporary file is left";
}

TEST(TextfileTest, ItsModeIs0644WhateverTheUmask) {
  TemporaryDir dir;
  const mode_t before = umask(0077);
  ASSERT_TRUE(ReplaceFile(dir / "mrd.prom", "x").ok());
  umask(before);
  struct stat found;
  ASSERT_EQ(stat((dir / "mrd.prom").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0644u);
}

TEST(TextfileTest, ALinkInThePlaceOfTheTemporaryFileIsNotFollowed) {
  TemporaryDir dir;
  std::ofstream(dir / "precious") << "precious";
  const std::string temporary = ".mrd.prom." + std::to_string(getpid()) + ".tmp";
  ASSERT_EQ(symlink((dir / "precious").c_str(), (dir / temporary).c_str()), 0);
  ASSERT_TRUE(ReplaceFile(dir / "mrd.prom", "x").ok());
  EXPECT_EQ(ReadAll(dir / "precious"), "precious");
  EXPECT_EQ(ReadAll(dir / "mrd.prom"), "x");
}

TEST(TextfileTest, WhereItCannotBeReplacedTheOldOneStaysAndNoOther) {
  TemporaryDir dir;
  ASSERT_EQ(mkdir((dir / "mrd.prom").c_str(), 0755), 0);
  const absl::Status status = ReplaceFile(dir / "mrd.prom", "x");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(dir / "mrd.prom"));
  EXPECT_EQ(dir.files(), 1u);
  EXPECT_FALSE(ReplaceFile("/nowhere/mrd.prom", "x").ok());
}

TEST(TextfileTest, IsWrittenAgainAndAgainAndRemovedInTheEnd) {
  TemporaryDir dir;
  std::atomic<int> made = 0;
  Page page([&] { return std::to_string(++made); });
  {
    Textfile file(page, dir / "mrd.prom", milliseconds(20));
    EXPECT_TRUE(WaitUntil([&] { return ReadAll(dir / "mrd.prom") == "1"; }));
    EXPECT_TRUE(WaitUntil([&] { return ReadAll(dir / "mrd.prom") == "2"; }));
  }
  EXPECT_EQ(dir.files(), 0u);
}

TEST(TextfileTest, AnErrorIsSaidOnceAndItsEndToo) {
  TemporaryDir dir;
  const std::string path = dir / "later/mrd.prom";
  Page page([] { return std::string("x"); });
  CapturedLog captured;
  {
    Textfile file(page, path, milliseconds(5));
    std::this_thread::sleep_for(milliseconds(200));
    ASSERT_EQ(mkdir((dir / "later").c_str(), 0755), 0);
    EXPECT_TRUE(WaitUntil([&] { return ReadAll(path) == "x"; }));
    std::this_thread::sleep_for(milliseconds(50));
  }
  const std::string log = captured.Taken();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_THAT(log, testing::HasSubstr("is written again"));
}

}  // namespace
}  // namespace mrd::host
