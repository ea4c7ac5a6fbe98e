#include "daemon/memory/disposer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "daemon/unique_fd.h"

namespace mrd::memory {
namespace {

TEST(Disposer, ClosesWhatItIsGiven) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  Disposer disposer;
  EXPECT_TRUE(disposer.Close(1000, UniqueFd(ends[1])));
  pollfd poll_fd{reader.get(), 0, 0};
  ASSERT_EQ(poll(&poll_fd, 1, 5000), 1);
  EXPECT_NE(poll_fd.revents & POLLHUP, 0);
  EXPECT_FALSE(disposer.Stuck(1000));
}

// Many at once are no crime: nobody's close hangs.
TEST(Disposer, IsNotStuckWhereClosesGoOn) {
  Disposer disposer;
  for (size_t i = 0; i < 4 * Disposer::kMostWaiting; ++i) {
    EXPECT_TRUE(disposer.Close(1000, UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC))));
  }
  EXPECT_FALSE(disposer.Stuck(1000));
}

std::atomic<bool> hang;
std::atomic<int> hanging;

void HangAwhile(int) {
  ++hanging;
  while (hang) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  --hanging;
}

TEST(Disposer, UsersWhoseClosesHangKeepNobodyElsesFromGoingOn) {
  hang = true;
  Disposer disposer;
  for (uint32_t uid = 0; uid < 64; ++uid) {
    disposer.Close(uid, UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)), HangAwhile);
  }
  while (hanging < 64) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  EXPECT_TRUE(disposer.Close(1000, UniqueFd(ends[1])));
  pollfd poll_fd{reader.get(), 0, 0};
  EXPECT_EQ(poll(&poll_fd, 1, 5000), 1);
  hang = false;
  while (hanging > 0) std::this_thread::yield();
}

}  // namespace
}  // namespace mrd::memory
