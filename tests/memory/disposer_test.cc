#include "daemon/memory/disposer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

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

}  // namespace
}  // namespace mrd::memory
