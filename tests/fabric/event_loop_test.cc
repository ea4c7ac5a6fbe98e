#include "daemon/fabric/event_loop.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <vector>

#include "gtest/gtest.h"

namespace mrd::fabric {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

TEST(EventLoop, PostedFunctionsRunInOrderInTheLoopsThread) {
  std::vector<int> order;
  bool in_loop = false;
  {
    EventLoop loop("test");
    EXPECT_FALSE(loop.InLoop());
    for (int i = 0; i < 1000; ++i) {
      loop.Post([&, i] {
        order.push_back(i);
        in_loop = loop.InLoop();
      });
    }
  }  // The destructor runs what is posted.
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[i], i);
  EXPECT_TRUE(in_loop);
}

TEST(EventLoop, WhatIsPostedWhileItEndsStillRuns) {
  int depth = 0;
  {
    EventLoop loop("test");
    loop.Post([&] { loop.Post([&] { loop.Post([&] { depth = 3; }); }); });
  }
  EXPECT_EQ(depth, 3);
}

TEST(EventLoop, WhatCannotBeWatchedFailsAloneAndTheLoopGoesOn) {
  EventLoop loop("test");
  bool called = false;
  const int none = eventfd(0, EFD_CLOEXEC);
  close(none);
  loop.RunSync([&] {
    const EventLoop::WatchId watch = loop.Watch(none, [&] { called = true; });
    EXPECT_EQ(watch, 0u);
    loop.Unwatch(watch);
  });
  EXPECT_FALSE(called);
}

TEST(EventLoop, RunSyncWaitsAndNests) {
  EventLoop loop("test");
  int value = 0;
  loop.RunSync([&] { loop.RunSync([&] { value = 1; }); });
  EXPECT_EQ(value, 1);
}

TEST(EventLoop, RunSyncFromManyThreads) {
  EventLoop loop("test");
  int count = 0;  // The loop's thread alone touches it.
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 500; ++j) loop.RunSync([&] { ++count; });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 2000);
}

TEST(EventLoop, TimersRunInTheOrderOfTheirDeadlines) {
  EventLoop loop("test");
  std::vector<int> order;
  std::promise<void> done;
  loop.RunSync([&] {
    const auto now = steady_clock::now();
    loop.At(now + milliseconds(30), [&] {
      order.push_back(3);
      done.set_value();
    });
    loop.At(now + milliseconds(10), [&] { order.push_back(1); });
    loop.At(now + milliseconds(20), [&] { order.push_back(2); });
    loop.At(EventLoop::Deadline::max(), [&] { order.push_back(4); });
    const auto cancelled = loop.At(now + milliseconds(15), [&] { order.push_back(9); });
    loop.Cancel(cancelled);
    loop.Cancel(cancelled);
    loop.Cancel(EventLoop::TimerId());
  });
  done.get_future().wait();
  loop.RunSync([] {});
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
}

TEST(EventLoop, ATimerIsNeverEarly) {
  EventLoop loop("test");
  for (int i = 0; i < 5; ++i) {
    std::promise<steady_clock::time_point> ran;
    const auto at = steady_clock::now() + std::chrono::microseconds(1700);
    loop.Post([&] { loop.At(at, [&] { ran.set_value(steady_clock::now()); }); });
    EXPECT_GE(ran.get_future().get(), at);
  }
}

TEST(EventLoop, AReadableFdIsToldUntilItIsUnwatched) {
  EventLoop loop("test");
  const int fd = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
  std::atomic<int> calls = 0;
  std::promise<void> done;
  EventLoop::WatchId id = 0;
  loop.RunSync([&] {
    id = loop.Watch(fd, [&] {
      if (++calls < 3) return;  // Level-triggered: it comes again, unread.
      loop.Unwatch(id);
      done.set_value();
    });
  });
  done.get_future().wait();
  loop.RunSync([] {});
  EXPECT_EQ(calls, 3);
  loop.RunSync([&] { loop.Unwatch(id); });  // A second time: nothing.
  close(fd);
}

TEST(EventLoop, OneCallbackUnwatchesAnotherThatIsReadyToo) {
  for (int round = 0; round < 20; ++round) {
    EventLoop loop("test");
    const int fds[] = {eventfd(1, EFD_CLOEXEC), eventfd(1, EFD_CLOEXEC)};
    EventLoop::WatchId ids[2];
    int calls = 0;
    loop.RunSync([&] {
      for (int i = 0; i < 2; ++i) {
        ids[i] = loop.Watch(fds[i], [&] {
          ++calls;
          loop.Unwatch(ids[0]);
          loop.Unwatch(ids[1]);
        });
      }
    });
    loop.RunSync([] {});
    loop.RunSync([] {});
    EXPECT_EQ(calls, 1);
    for (int fd : fds) close(fd);
  }
}

}  // namespace
}  // namespace mrd::fabric
