// The watchdog on a main loop of the test's own; those that serve calls are faked.
#include "daemon/host/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <systemd/sd-event.h>

#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/host/captured_log.h"

namespace mrd::host {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class WatchdogTest : public testing::Test {
 protected:
  static constexpr milliseconds kTimeout{400};

  WatchdogTest() {
    EXPECT_GE(sd_event_new(&loop_), 0);
    watchdog_ =
        std::make_unique<Watchdog>(loop_, kTimeout,
                                   Watchdog::Parts{[this](auto answer) {
                                                     ++pings_;
                                                     if (answers_) return answer();
                                                     held_.push_back(std::move(answer));
                                                   },
                                                   [this] { fed_.push_back(Clock::now()); }});
  }
  ~WatchdogTest() override {
    watchdog_ = nullptr;
    sd_event_unref(loop_);
  }

  void RunFor(milliseconds time) {
    const auto until = Clock::now() + time;
    while (Clock::now() < until) sd_event_run(loop_, 10000);
  }

  CapturedLog log_;
  sd_event* loop_ = nullptr;
  bool answers_ = true;
  int pings_ = 0;
  std::vector<std::function<void()>> held_;
  std::vector<Clock::time_point> fed_;
  std::unique_ptr<Watchdog> watchdog_;
};

TEST_F(WatchdogTest, IsFedTwiceInItsTime) {
  RunFor(kTimeout * 3);
  EXPECT_GE(fed_.size(), 6u);
  EXPECT_LE(fed_.size(), 12u) << "no more than is needed";
}

TEST_F(WatchdogTest, IsNotFedWhileTheLoopIsStuck) {
  answers_ = false;
  RunFor(kTimeout / 2);
  fed_.clear();
  // Those that serve calls answer all the while.
  ASSERT_EQ(held_.size(), 1u);
  std::thread([answer = std::exchange(held_, {}).at(0)] { answer(); }).join();
  std::this_thread::sleep_for(kTimeout);
  EXPECT_TRUE(fed_.empty()) << "on their say-so";
  answers_ = true;
  RunFor(kTimeout);
  EXPECT_FALSE(fed_.empty());
}

TEST_F(WatchdogTest, IsNotFedWhileCallsAreNotServed) {
  RunFor(kTimeout);
  answers_ = false;
  RunFor(kTimeout / 2);  // The answers before it.
  fed_.clear();
  pings_ = 0;
  RunFor(kTimeout * 2);
  EXPECT_TRUE(fed_.empty()) << "on the loop's own say-so";
  EXPECT_EQ(pings_, 0) << "one at a time";
  EXPECT_THAT(log_.Taken(), HasSubstr("error the gRPC side has not answered for 200 ms"));
}

TEST_F(WatchdogTest, IsFedAgainOnceCallsAreServed) {
  answers_ = false;
  RunFor(kTimeout);
  fed_.clear();
  answers_ = true;
  for (const auto& answer : std::exchange(held_, {})) answer();
  RunFor(kTimeout);
  EXPECT_GE(fed_.size(), 2u);
  EXPECT_THAT(log_.Taken(), HasSubstr("the gRPC side answers again"));
}

TEST_F(WatchdogTest, TakesAnswersFromOtherThreadsAndAfterItsEnd) {
  answers_ = false;
  RunFor(kTimeout / 2);
  fed_.clear();
  ASSERT_EQ(held_.size(), 1u);
  std::thread([answer = std::exchange(held_, {}).at(0)] { answer(); }).join();
  RunFor(kTimeout / 2);
  EXPECT_EQ(fed_.size(), 1u);
  ASSERT_EQ(held_.size(), 1u);
  watchdog_ = nullptr;
  held_.at(0)();
}

}  // namespace
}  // namespace mrd::host
