#include "daemon/ipc/event.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace mrd::ipc {
namespace {

TEST(EventSource, OneThatTheKernelDoesNotTakeIsEmptyAndHarmsNothing) {
  sd_event* loop = nullptr;
  ASSERT_GE(sd_event_new(&loop), 0);
  const int none = eventfd(0, EFD_CLOEXEC);
  close(none);
  {
    EventSource source(loop, none, EPOLLIN, [](uint32_t) {});
    EXPECT_FALSE(source);
    source.SetEnabled(true);
  }
  bool ran = false;
  const EventSource other(loop, std::chrono::milliseconds(0), [&] { ran = true; });
  EXPECT_TRUE(other);
  EXPECT_GE(sd_event_run(loop, UINT64_MAX), 0);
  EXPECT_TRUE(ran);
  sd_event_unref(loop);
}

TEST(EventSource, ATimerSetAgainRunsAgain) {
  sd_event* loop = nullptr;
  ASSERT_GE(sd_event_new(&loop), 0);
  {
    int runs = 0;
    EventSource timer(loop, std::chrono::milliseconds(0), [&] {
      if (++runs < 3) timer.SetAgain(std::chrono::milliseconds(1));
    });
    while (runs < 3) ASSERT_GE(sd_event_run(loop, UINT64_MAX), 0);
    EXPECT_EQ(sd_event_run(loop, 10000), 0) << "and not once more";
  }
  sd_event_unref(loop);
}

}  // namespace
}  // namespace mrd::ipc
