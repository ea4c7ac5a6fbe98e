#include "daemon/broker/session_log.h"

#include <gmock/gmock.h>

#include <string>

#include "daemon/broker/session.h"
#include "daemon/host/metrics/counters.h"
#include "tests/host/captured_log.h"

namespace mrd::broker {
namespace {

using testing::HasSubstr;

class SessionLogTest : public testing::Test {
 protected:
  void Say(uint64_t session, uint32_t uid = 1000, const char* text = "refused") {
    log_.Write(spdlog::level::warn, session, {.uid = uid, .comm = "", .death = ""}, text, {}, now_);
  }
  std::string Taken() { return captured_.Taken(); }
  size_t Lines() { return captured_.Lines(); }

  host::CapturedLog captured_;
  host::Counters counters_;
  SessionLog log_{counters_};
  SessionLog::Clock::time_point now_ = SessionLog::Clock::now();
};

TEST_F(SessionLogTest, ASessionHasTenLinesAMinuteAndOneSaysHowManyWereLeftOut) {
  for (int i = 0; i < 1000; ++i) Say(1);
  EXPECT_EQ(Lines(), 10u);
  EXPECT_EQ(counters_.lines_left_out.value(), 990u);
  now_ += std::chrono::seconds(10);
  Say(1);
  EXPECT_THAT(Taken(), HasSubstr("990 lines of this session were left out before"));
  now_ += std::chrono::minutes(1);
  for (int i = 0; i < 1000; ++i) Say(1);
  EXPECT_EQ(Lines(), 10u);
}

TEST_F(SessionLogTest, AnotherSessionIsNotSilencedByIt) {
  for (int i = 0; i < 1000; ++i) Say(1);
  Taken();
  Say(2);
  Say(3, 1001);
  EXPECT_EQ(Lines(), 2u);
}

TEST_F(SessionLogTest, SessionsThatComeAndGoHaveNoMoreThanTheirUsersShare) {
  for (int i = 0; i < 10000; ++i) Say(1 + i);
  EXPECT_EQ(Lines(), 40u);
  Say(20000, 1001);
  EXPECT_EQ(Lines(), 1u) << "another user's";
  now_ += std::chrono::minutes(1);
  log_.Sweep(now_);
  EXPECT_THAT(Taken(), HasSubstr("9960 lines of this user were left out"));
}

TEST_F(SessionLogTest, WhatWasLeftOutOfAQuietSessionIsToldOnce) {
  for (int i = 0; i < 15; ++i) Say(1);
  Taken();
  log_.Sweep(now_ + std::chrono::seconds(30));
  EXPECT_EQ(Taken(), "");
  log_.Sweep(now_ + std::chrono::seconds(61));
  EXPECT_THAT(Taken(), HasSubstr("5 lines of this session were left out"));
  log_.Sweep(now_ + std::chrono::seconds(200));
  EXPECT_EQ(Taken(), "");
}

TEST_F(SessionLogTest, WhoAsksForDebugLinesHasAll) {
  spdlog::default_logger()->set_level(spdlog::level::debug);
  for (int i = 0; i < 100; ++i) {
    log_.Write(spdlog::level::debug, 1, {.uid = 1000, .comm = "", .death = ""}, "call", {}, now_);
  }
  EXPECT_EQ(Lines(), 100u);
}

}  // namespace
}  // namespace mrd::broker
