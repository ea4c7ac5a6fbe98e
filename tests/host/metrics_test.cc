// What the metrics say of a broker, and how many series a client can make.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "daemon/host/metrics/render.h"
#include "daemon/host/metrics/uids.h"
#include "daemon/stats.h"
#include "tests/broker/broker_fixture.h"

namespace mrd::host {
namespace {

using broker::kUid;
using testing::HasSubstr;
using testing::Not;

class MetricsTest : public broker::BrokerTest {
 protected:
  MetricsTest() {
    broker_ = std::make_unique<broker::Broker>(*fabric_, broker::Limits(), 4, counters_);
  }
  // The base's destructor ends the broker, which tells the counters: they have to be there still.
  ~MetricsTest() override {
    std::promise<void> drained;
    broker_->Drain([&] { drained.set_value(); });
    drained.get_future().wait();
    broker_ = std::make_unique<broker::Broker>(*fabric_, broker::Limits(), 4);
  }

  std::string Render() { return RenderMetrics({*broker_, counters_, calls_, started_}); }
  // A line of it, with its end.
  bool Shows(const std::string& line) {
    return ("\n" + Render()).find("\n" + line + "\n") != std::string::npos;
  }
  static size_t Lines(const std::string& text) {
    return std::count(text.begin(), text.end(), '\n');
  }

  Counters counters_;
  service::CallTable calls_;
  const std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
};

TEST_F(MetricsTest, ShowsWhatSessionsHoldByUidDeviceAndDomain) {
  const auto session = Attach();
  Pass(session, 1);
  auto both = Spec({Range(0, 4096), Range(8192, 8192)});
  both.devices = {"fake0", "fake1"};
  ASSERT_TRUE(Register(session, both).ok());
  ASSERT_TRUE(Register(session, Spec({Range(0, 1)}, "fake1")).ok());
  EXPECT_TRUE(Shows(R"(mrd_sessions{uid="1000"} 1)"));
  EXPECT_TRUE(Shows(R"(mrd_buffers{uid="1000"} 1)"));
  EXPECT_TRUE(Shows(R"(mrd_regions{uid="1000",device="fake0",domain="private"} 2)"));
  EXPECT_TRUE(Shows(R"(mrd_pinned_bytes{uid="1000",device="fake0",domain="private"} 12288)"));
  EXPECT_TRUE(Shows(R"(mrd_regions{uid="1000",device="fake1",domain="private"} 3)"));
  EXPECT_TRUE(Shows(R"(mrd_pinned_bytes{uid="1000",device="fake1",domain="private"} 16384)"));
  EXPECT_TRUE(Shows(R"(mrd_booked_bytes{uid="1000"} 28672)"));
  EXPECT_TRUE(Shows(R"(mrd_registrar_threads 5)"));
}

TEST_F(MetricsTest, AUidThatHasNothingLeavesNoSeries) {
  for (uint32_t uid = 2000; uid < 2100; ++uid) {
    const auto session = Attach(uid);
    Pass(session, 1);
    ASSERT_TRUE(Register(session, Spec({Range(0, 4096)})).ok());
    EXPECT_THAT(Render(), HasSubstr("uid=\"" + std::to_string(uid) + "\""));
    EndAndWait(session);
  }
  EXPECT_THAT(Render(), Not(HasSubstr("uid=\"2")));
}

TEST_F(MetricsTest, SaysWhatEndedSessionsAndLeases) {
  const auto session = Attach();
  Pass(session, 1);
  auto registered = Register(session, Spec({Range(0, 4096), Range(4096, 4096), Range(8192, 1)}));
  ASSERT_TRUE(registered.ok());
  ASSERT_TRUE(Deregister(session, {(**registered)[0].id}).ok());
  broker_->End(session, broker::SessionEnd::kHangUp);
  while (broker_->SessionById(session->id)) std::this_thread::yield();
  broker_->End(session, broker::SessionEnd::kPidfd);  // Of one that has ended: nothing.
  EndAndWait(Attach());
  EXPECT_TRUE(Shows(R"(mrd_sessions_attached_total 2)"));
  EXPECT_TRUE(Shows(R"(mrd_sessions_ended_total{cause="hang-up"} 1)"));
  EXPECT_TRUE(Shows(R"(mrd_sessions_ended_total{cause="pidfd"} 0)"));
  EXPECT_TRUE(Shows(R"(mrd_sessions_ended_total{cause="revoked"} 1)"));
  EXPECT_TRUE(Shows(R"(mrd_session_cleanup_seconds_count 2)"));
  EXPECT_TRUE(Shows(R"(mrd_leases_ended_total{cause="deregistered"} 1)"));
  EXPECT_TRUE(Shows(R"(mrd_leases_ended_total{cause="session_ended"} 2)"));
}

TEST_F(MetricsTest, WhatOthersCountIsShown) {
  counters_.LeasesEnded(broker::LeaseEnd::kLapsed, 3);
  counters_.LeasesEnded(broker::LeaseEnd::kRevoked, 4);
  counters_.LeasesEnded(broker::LeaseEnd::kDeviceRemoved, 5);
  counters_.DeviceChanged(broker::DeviceEvent::kRemoved);
  counters_.Refused(v1::QUOTA_BYTES);
  counters_.Refused(static_cast<v1::Reason>(4711));
  counters_.PolicyRead(false);
  counters_.TaskWaited(std::chrono::milliseconds(3));
  EXPECT_TRUE(Shows(R"(mrd_leases_ended_total{cause="lapsed"} 3)"));
  EXPECT_TRUE(Shows(R"(mrd_leases_ended_total{cause="revoked"} 4)"));
  EXPECT_TRUE(Shows(R"(mrd_leases_ended_total{cause="device_removed"} 5)"));
  EXPECT_TRUE(Shows(R"(mrd_device_events_total{event="removed"} 1)"));
  EXPECT_TRUE(Shows(R"(mrd_refusals_total{reason="QUOTA_BYTES"} 1)"));
  EXPECT_TRUE(Shows(R"(mrd_refusals_total{reason="REASON_UNSPECIFIED"} 1)"));
  EXPECT_TRUE(Shows(R"(mrd_policy_reads_total{result="refused"} 1)"));
  EXPECT_TRUE(Shows(R"(mrd_registrar_wait_seconds_bucket{le="0.002"} 0)"));
  EXPECT_TRUE(Shows(R"(mrd_registrar_wait_seconds_bucket{le="0.005"} 1)"));
}

TEST_F(MetricsTest, CallsAreShownByMethodAndCode) {
  service::CallStats& calls = calls_.Of("Register");
  calls.Finished(0, std::chrono::microseconds(1));
  calls.Finished(0, std::chrono::nanoseconds(1001));
  calls.Finished(8, std::chrono::seconds(61));
  calls.Finished(-1, std::chrono::nanoseconds(-5));
  calls.Finished(4711, std::chrono::nanoseconds(0));
  EXPECT_TRUE(Shows(R"(mrd_calls_total{method="Register",code="OK"} 2)"));
  EXPECT_TRUE(Shows(R"(mrd_calls_total{method="Register",code="RESOURCE_EXHAUSTED"} 1)"));
  EXPECT_TRUE(Shows(R"(mrd_calls_total{method="Register",code="UNKNOWN"} 2)"));
  const std::string bucket = R"(mrd_call_duration_seconds_bucket{method="Register",le=)";
  EXPECT_TRUE(Shows(bucket + R"("1e-06"} 3)")) << "a bound belongs to its bucket" << Render();
  EXPECT_TRUE(Shows(bucket + R"("2e-06"} 4)"));
  EXPECT_TRUE(Shows(bucket + R"("60"} 4)"));
  EXPECT_TRUE(Shows(bucket + R"("+Inf"} 5)"));
  EXPECT_TRUE(Shows(R"(mrd_call_duration_seconds_count{method="Register"} 5)"));
}

TEST_F(MetricsTest, EveryFamilyHasHelpAndTypeAndNoSeriesComesTwice) {
  const auto session = Attach();
  calls_.Of("Register").Finished(0, std::chrono::microseconds(1));
  std::istringstream text(Render());
  std::string line, help;
  std::set<std::string> seen;
  while (std::getline(text, line)) {
    if (line.starts_with("# HELP ")) help = line.substr(7, line.find(' ', 7) - 7);
    EXPECT_TRUE(line.starts_with("# ") || line.starts_with(help)) << line;
    EXPECT_TRUE(help.starts_with("mrd_")) << line;
    if (line[0] == '#') continue;
    EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << line;
  }
  EXPECT_GT(seen.size(), 60u);
}

TEST_F(MetricsTest, ThousandsOfUidsMakeABoundedNumberOfSeries) {
  const size_t before = Lines(Render());
  std::vector<broker::HolderRef> holders;
  for (uint32_t uid = 10'000; uid < 13'000; ++uid) {
    holders.push_back(broker_->books().Join({.uid = uid}));
    ASSERT_TRUE(broker_->books().Book(*holders.back(), {.sessions = 1}).ok());
  }
  const std::string text = Render();
  EXPECT_LE(Lines(text), before + UidLabels::kMost + 1);
  EXPECT_THAT(text, HasSubstr("mrd_sessions{uid=\"other\"} 2000\n"));
  for (const auto& holder : holders) broker_->books().Release(*holder, {.sessions = 1});
  EXPECT_EQ(Lines(Render()), before);
}

TEST(UidLabelsTest, ThoseThatHoldMostAreShown) {
  std::map<uint32_t, broker::Amounts> used;
  for (uint32_t uid = 0; uid < 10; ++uid) used[uid] = {.sessions = 1, .bytes = uid};
  const UidLabels labels(used, 3);
  EXPECT_EQ(labels.Of(9), "9");
  EXPECT_EQ(labels.Of(7), "7");
  EXPECT_EQ(labels.Of(6), "other");
  EXPECT_EQ(labels.Of(4711), "other") << "one that has come since";
  EXPECT_EQ(UidLabels(used, 10).Of(0), "0");
}

TEST(DurationsTest, BoundsAreFromAMicrosecondToAMinuteAndRise) {
  const auto& bounds = stats::Durations::kBoundsNs;
  EXPECT_EQ(bounds.front(), 1'000u);
  EXPECT_EQ(bounds[bounds.size() - 2], 50'000'000'000u);
  EXPECT_EQ(bounds.back(), 60'000'000'000u);
  EXPECT_TRUE(std::is_sorted(bounds.begin(), bounds.end()));
}

TEST(DurationsTest, ManyThreadsLoseNothing) {
  stats::Durations durations;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 10000; ++j) durations.Add(std::chrono::nanoseconds(j * 100));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto snapshot = durations.Read();
  uint64_t count = 0;
  for (const uint64_t bucket : snapshot.counts) count += bucket;
  EXPECT_EQ(count, 40000u);
  EXPECT_EQ(snapshot.total_ns, uint64_t{4} * 100 * (9999 * 10000 / 2));
}

}  // namespace
}  // namespace mrd::host
