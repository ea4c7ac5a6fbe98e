// The kernel's uevents on a main loop of the test's own.
#include "daemon/host/hotplug.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <systemd/sd-event.h>

#include <chrono>
#include <memory>

#include "tests/fake/fake_verbs.h"

namespace mrd::host {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class HotPlugTest : public testing::Test {
 protected:
  HotPlugTest() { EXPECT_GE(sd_event_new(&loop_), 0); }
  ~HotPlugTest() override {
    hotplug_ = nullptr;
    sd_event_unref(loop_);
  }

  void Start() {
    hotplug_ = std::make_unique<HotPlug>(loop_, kernel_, [this] { ++looks_; });
  }
  void RunFor(milliseconds time) {
    const auto until = Clock::now() + time;
    while (Clock::now() < until) sd_event_run(loop_, 10000);
  }
  // Without the one that comes a second after the start.
  void RunPastTheFirst() {
    RunFor(milliseconds(1200));
    EXPECT_EQ(looks_, 1);
    looks_ = 0;
  }

  fake::FakeVerbs kernel_;
  sd_event* loop_ = nullptr;
  int looks_ = 0;
  std::unique_ptr<HotPlug> hotplug_;
};

TEST_F(HotPlugTest, EachBatchOfUeventsIsALookAtOnceAndOneASecondLater) {
  Start();
  RunPastTheFirst();
  for (int i = 0; i < 10; ++i) kernel_.uevents().Push("add", "uverbs0");
  RunFor(milliseconds(100));
  EXPECT_EQ(looks_, 1);
  RunFor(milliseconds(1500));
  EXPECT_EQ(looks_, 2);
}

TEST_F(HotPlugTest, LostUeventsAreALookToo) {
  Start();
  RunPastTheFirst();
  kernel_.uevents().Lose();
  for (int i = 0; i < 10; ++i) kernel_.uevents().Push("remove", "uverbs0");
  RunFor(milliseconds(100));
  EXPECT_EQ(looks_, 1);
  kernel_.uevents().Push("add", "uverbs0");
  RunFor(milliseconds(100));
  EXPECT_EQ(looks_, 2);
}

TEST_F(HotPlugTest, AFloodDoesNotHoldTheLoop) {
  Start();
  for (int i = 0; i < 1000; ++i) kernel_.uevents().Push("change", "rxe0");
  ASSERT_GE(sd_event_run(loop_, 1000000), 0);
  EXPECT_LE(kernel_.uevents().reads(), 300);
  RunFor(milliseconds(100));
  EXPECT_GT(kernel_.uevents().reads(), 1000);
}

TEST_F(HotPlugTest, WithoutUeventsItLooksNowAndThen) {
  kernel_.uevents().FailOpen(EPERM);
  Start();
  RunFor(milliseconds(6500));
  EXPECT_EQ(looks_, 2);
}

TEST_F(HotPlugTest, UeventsThatCannotBeReadCostNoProcessorTime) {
  Start();
  RunPastTheFirst();
  const int before = kernel_.uevents().reads();
  kernel_.uevents().FailReads(EIO);
  kernel_.uevents().Push("add", "uverbs0");
  RunFor(milliseconds(300));
  EXPECT_EQ(kernel_.uevents().reads(), before + 1);
  EXPECT_EQ(looks_, 1);
  RunFor(milliseconds(5000));
  EXPECT_EQ(looks_, 2);
}

}  // namespace
}  // namespace mrd::host
