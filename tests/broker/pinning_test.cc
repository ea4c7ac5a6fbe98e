// Calls on several devices, and long ones.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/broker/broker_fixture.h"

namespace mrd::broker {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kLarge = 64 << 20;

class PinningTest : public BrokerTest {
 protected:
  explicit PinningTest(const std::string& delays = "")
      : BrokerTest("devices=fake0,fake1" + delays), link_(std::make_shared<FakeLink>()) {
    session_ = Attach(kUid, link_);
    Pass(session_, 1, kLarge);
  }

  static RegisterSpec OnBoth(size_t ranges, uint64_t length) {
    RegisterSpec spec = Spec({});
    for (size_t i = 0; i < ranges; ++i) spec.ranges.push_back(Range(0, length));
    spec.devices = {"fake0", "fake1"};
    return spec;
  }
  std::vector<Progress> Reports() {
    std::vector<Progress> reports;
    MutexLock lock(link_->mutex);
    for (const Event& event : link_->events) {
      EXPECT_EQ(event.kind, v1::AttachEvent::PROGRESS);
      reports.push_back(*event.progress);
    }
    return reports;
  }

  std::shared_ptr<FakeLink> link_;
  SessionRef session_;
};

class SlowPinningTest : public PinningTest {
 protected:
  SlowPinningTest() : PinningTest(";fake0.reg_delay_ms=30;fake1.reg_delay_ms=30") {}
};

TEST_F(PinningTest, KeysComeInTheOrderOfTheDevices) {
  RegisterSpec spec = OnBoth(3, kLarge);
  spec.devices = {"fake1", "fake0"};
  const auto leases = Register(session_, spec);
  ASSERT_TRUE(leases.ok()) << leases.status();
  for (const LeaseView& view : **leases) {
    ASSERT_EQ(view.keys.size(), 2u);
    EXPECT_EQ(view.keys[0].device->name, "fake1");
    EXPECT_EQ(view.keys[1].device->name, "fake0");
    EXPECT_NE(view.keys[0].rkey, 0u);
    EXPECT_NE(view.keys[1].rkey, 0u);
  }
  EXPECT_EQ(verbs_.live().mrs, 6);
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 6 * kLarge);
}

TEST_F(SlowPinningTest, DevicesArePinnedOnSideBySide) {
  const auto began = steady_clock::now();
  ASSERT_TRUE(Register(session_, OnBoth(10, 1 << 20)).ok());
  const auto took = steady_clock::now() - began;
  EXPECT_GE(took, milliseconds(300));
  EXPECT_LT(took, milliseconds(550)) << "one after the other it takes 600 ms";
}

TEST_F(SlowPinningTest, WhatOneDeviceRefusesIsRolledBackOnTheOthers) {
  verbs_.Fail("fake1", "reg", "ENOMEM@3");
  const auto refused = Register(session_, OnBoth(10, 1 << 20));
  EXPECT_FALSE(refused.ok());
  EXPECT_EQ(verbs_.live().mrs, 0);
  EXPECT_EQ(broker_->books().Used(kUid).regions, 0u);
  EXPECT_TRUE(Register(session_, OnBoth(1, 1 << 20)).ok());
}

TEST_F(SlowPinningTest, ARegionThatWillNotEndInARollBackStaysBooked) {
  verbs_.Fail("fake1", "reg", "ENOMEM@3");
  verbs_.Fail("fake0", "dereg", "EBUSY@1");
  EXPECT_FALSE(Register(session_, OnBoth(10, 1 << 20)).ok());
  EXPECT_EQ(verbs_.live().mrs, 1);
  EXPECT_EQ(broker_->books().Used(kUid).regions, 1u);
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 1u << 20);
  // The fixture wants everything gone in the end; what is stuck goes with the broker.
  EndAndWait(session_);
  broker_->books().Release(*session_->holder, {.regions = 1, .bytes = 1 << 20});
}

TEST_F(SlowPinningTest, ACancelledCallStopsAndIsRolledBack) {
  std::atomic<bool> wanted = true;
  RegisterSpec spec = OnBoth(640, 1 << 20);  // Twenty seconds.
  spec.wanted = [&] { return wanted.load(); };
  auto answer = StartRegister(session_, spec);
  while (verbs_.live().mrs < 4) std::this_thread::sleep_for(milliseconds(1));
  wanted = false;
  ASSERT_EQ(answer.wait_for(std::chrono::seconds(15)), std::future_status::ready);
  EXPECT_EQ(answer.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(verbs_.live().mrs, 0);
  EXPECT_EQ(broker_->books().Used(kUid).regions, 0u);
}

TEST_F(SlowPinningTest, ACancelledCallGoesOnWhereARepeatWaitsForIt) {
  std::atomic<bool> wanted = true;
  RegisterSpec spec = OnBoth(100, 1 << 20);
  spec.request_id = "again";
  spec.wanted = [&] { return wanted.load(); };
  auto first = StartRegister(session_, spec);
  while (verbs_.live().mrs < 2) std::this_thread::sleep_for(milliseconds(1));
  RegisterSpec repeat = OnBoth(100, 1 << 20);
  repeat.request_id = "again";
  auto second = StartRegister(session_, repeat);
  wanted = false;
  ASSERT_TRUE(second.get().ok());
  EXPECT_TRUE(first.get().ok());
  EXPECT_EQ(verbs_.live().mrs, 200);
}

TEST_F(SlowPinningTest, ACallThatIsCancelledDuringItsLastPinIsRolledBack) {
  // Until the device has begun with its one range: no other piece of work comes after that.
  std::atomic<int> asked = 0;
  RegisterSpec spec = Spec({Range(0, 1 << 20)});
  spec.wanted = [&] { return asked++ == 0; };
  EXPECT_EQ(Register(session_, spec).status().code(), absl::StatusCode::kCancelled);
  EXPECT_GE(asked, 2);
  EXPECT_EQ(verbs_.live().mrs, 0);
  EXPECT_EQ(broker_->books().Used(kUid).regions, 0u);
}

TEST_F(SlowPinningTest, ACancelledRepeatKeepsACancelledCallFromNothing) {
  std::atomic<bool> wanted = true;
  std::atomic<bool> wanted_again = true;
  RegisterSpec spec = OnBoth(640, 1 << 20);  // Twenty seconds.
  spec.request_id = "again";
  spec.wanted = [&] { return wanted.load(); };
  auto first = StartRegister(session_, spec);
  while (verbs_.live().mrs < 2) std::this_thread::sleep_for(milliseconds(1));
  RegisterSpec repeat = spec;
  repeat.wanted = [&] { return wanted_again.load(); };
  auto second = StartRegister(session_, repeat);
  wanted = false;
  const int before = verbs_.live().mrs;
  while (verbs_.live().mrs < before + 2) std::this_thread::sleep_for(milliseconds(1));
  wanted_again = false;
  ASSERT_EQ(first.wait_for(std::chrono::seconds(15)), std::future_status::ready);
  EXPECT_EQ(first.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(second.get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(verbs_.live().mrs, 0);
}

class SlowToEndTest : public PinningTest {
 protected:
  SlowToEndTest() : PinningTest(";fake0.dereg_delay_ms=200") {}
};

TEST_F(SlowToEndTest, ARepeatThatComesWhileACancelledCallIsRolledBackRunsByItself) {
  std::atomic<int> asked = 0;
  RegisterSpec spec = Spec({Range(0, 1 << 20)});
  spec.request_id = "again";
  RegisterSpec repeat = spec;
  spec.wanted = [&] { return asked++ == 0; };
  auto first = StartRegister(session_, spec);
  while (asked < 2) std::this_thread::sleep_for(milliseconds(1));
  const auto second = Register(session_, repeat);
  EXPECT_EQ(first.get().status().code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(verbs_.live().mrs, 1);
  EXPECT_EQ(broker_->books().Used(kUid).regions, 1u);
}

TEST_F(SlowPinningTest, LongOnesReportHowFarTheyAre) {
  RegisterSpec spec = OnBoth(20, kLarge);  // 2.5 GiB over both.
  spec.request_id = "long";
  ASSERT_TRUE(Register(session_, spec).ok());
  const auto reports = Reports();
  ASSERT_GE(reports.size(), 2u);
  EXPECT_LE(reports.size(), 8u) << "five a second";
  uint64_t last = 0;
  for (const Progress& report : reports) {
    EXPECT_EQ(report.request_id, "long");
    EXPECT_EQ(report.bytes_total, 40 * kLarge);
    EXPECT_EQ(report.ranges_total, 40u);
    EXPECT_LE(report.bytes_pinned, report.bytes_mapped);
    EXPECT_LE(report.bytes_mapped, report.bytes_total);
    EXPECT_GE(report.bytes_mapped + report.bytes_pinned, last);
    last = report.bytes_mapped + report.bytes_pinned;
  }
  EXPECT_GT(last, 0u);
}

TEST_F(SlowPinningTest, ShortOnesDoNot) {
  ASSERT_TRUE(Register(session_, OnBoth(15, 1 << 20)).ok());
  EXPECT_TRUE(Reports().empty());
}

TEST_F(SlowPinningTest, ASessionThatEndsStopsAllDevices) {
  auto answer = StartRegister(session_, OnBoth(640, 1 << 20));
  while (verbs_.live().mrs < 4) std::this_thread::sleep_for(milliseconds(1));
  EndAndWait(session_);
  EXPECT_EQ(ReasonOf(answer.get().status()), v1::SESSION_UNKNOWN);
  EXPECT_EQ(verbs_.live().mrs, 0);
}

TEST_F(SlowPinningTest, MoreCallsThanThreadsHelpOneAnotherWithoutEndingInADeadlock) {
  std::vector<std::future<RegisterResult>> answers;
  for (int i = 0; i < 16; ++i) answers.push_back(StartRegister(session_, OnBoth(2, 1 << 20)));
  for (auto& answer : answers) EXPECT_TRUE(answer.get().ok());
  EXPECT_EQ(verbs_.live().mrs, 64);
}

}  // namespace
}  // namespace mrd::broker
