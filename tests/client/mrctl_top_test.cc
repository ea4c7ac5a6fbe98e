// What mrctl top shows, with a clock of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/mrctl/top_view.h"

namespace mrctl {
namespace {

using mrd::v1::GetStatusResponse;
using mrd::v1::Session;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kNow = 1'800'000'000;

Session SessionOf(uint64_t id, uint64_t bytes, uint64_t calls, const std::string& who = "client") {
  Session session;
  session.set_session_id(id);
  session.set_pid(4194304);
  session.set_uid(1000000);
  session.set_pinned_bytes(bytes);
  session.set_regions(bytes / 4096);
  session.set_calls(calls);
  session.set_command_line(who);
  session.mutable_attached_time()->set_seconds(kNow - 100 * static_cast<int64_t>(id));
  return session;
}

GetStatusResponse Status() {
  GetStatusResponse status;
  status.set_daemon_version("0.1.0");
  status.set_fabric("verbs");
  status.mutable_start_time()->set_seconds(kNow - 3600 * 30);
  status.mutable_totals()->set_sessions(3);
  status.mutable_totals()->set_regions(1234567);
  status.mutable_totals()->set_pinned_bytes(uint64_t{3} << 40);
  return status;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

class TopTest : public testing::Test {
 protected:
  void Take(std::vector<Session> sessions, seconds later = seconds(1)) {
    now_ += later;
    model_.Take(now_, Status(), std::move(sessions));
  }
  std::vector<uint64_t> Order(TopOrder order, bool reverse = false) {
    model_.Sort(order, reverse);
    std::vector<uint64_t> ids;
    for (const auto& each : model_.sample().sessions()) ids.push_back(each.session().session_id());
    return ids;
  }
  std::vector<std::string> Draw(TopLook look) { return LinesOf(DrawTop(model_, look, kNow, 1)); }

  TopModel model_;
  TopModel::Clock::time_point now_;
};

TEST_F(TopTest, WhatAClientCallsItselfIsNotTakenForWhatMrctlSays) {
  Session named = SessionOf(1, 0, 0, "evil");
  named.set_name("(admin) mrctl: \xe2\x80\xae top");
  Take({named, SessionOf(2, 0, 0, "(this) mrctl")});
  const std::string text = DrawTop(model_, {}, kNow, 0);
  EXPECT_THAT(text, HasSubstr("\"(admin) mrctl: ??? top\": evil"));
  EXPECT_THAT(text, HasSubstr("\"(this) mrctl\""));
}

TEST_F(TopTest, RatesAreOverTheTimeBetweenTwoLooks) {
  Take({SessionOf(1, 0, 100), SessionOf(2, 0, 5)});
  EXPECT_EQ(model_.calls_per_second(), 0) << "nobody knows yet";
  Take({SessionOf(1, 0, 300), SessionOf(2, 0, 5), SessionOf(3, 0, 50)}, seconds(2));
  EXPECT_EQ(model_.sample().seconds(), 2);
  EXPECT_EQ(model_.sample().sessions(0).calls_per_second(), 100);
  EXPECT_EQ(model_.sample().sessions(1).calls_per_second(), 0);
  EXPECT_EQ(model_.sample().sessions(2).calls_per_second(), 25) << "a new one";
  EXPECT_EQ(model_.calls_per_second(), 125);
  // A daemon that was started anew counts from 0, under the same ids.
  Take({SessionOf(1, 0, 10)});
  EXPECT_EQ(model_.sample().sessions(0).calls_per_second(), 0);
}

TEST_F(TopTest, SortsByWhatWasAskedFor) {
  Take({SessionOf(1, 4096, 0), SessionOf(2, 8192, 0), SessionOf(3, 4096, 0)});
  Take({SessionOf(1, 4096, 1), SessionOf(2, 8192, 2), SessionOf(3, 4096, 30)});
  EXPECT_EQ(Order(TopOrder::kBytes), (std::vector<uint64_t>{2, 1, 3}));
  EXPECT_EQ(Order(TopOrder::kCalls), (std::vector<uint64_t>{3, 2, 1}));
  EXPECT_EQ(Order(TopOrder::kAge), (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(Order(TopOrder::kAge, true), (std::vector<uint64_t>{3, 2, 1}));
  TopOrder order;
  for (const char* key = kOrderKeys; *key; ++key) EXPECT_TRUE(OrderOfKey(*key, &order)) << *key;
  EXPECT_FALSE(OrderOfKey('x', &order));
  EXPECT_FALSE(OrderOfKey('\0', &order));
  EXPECT_EQ(OrderWords().size(), sizeof kOrderKeys - 1) << "a key for each";
}

TEST_F(TopTest, FitsIn80Columns) {
  std::vector<Session> many;
  for (uint64_t id = 1; id <= 100; ++id) {
    many.push_back(SessionOf(id, uint64_t{1023} << 30, id * 100000, std::string(256, 'w')));
  }
  Take(many);
  for (Session& each : many) each.set_calls(each.calls() + 99999);
  Take(many);
  const auto lines = Draw({.columns = 80, .rows = 24});
  ASSERT_EQ(lines.size(), 24u);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_THAT(lines[2], HasSubstr("*PINNED"));
  EXPECT_THAT(lines[2], HasSubstr("WHO")) << "every column has room";
  EXPECT_THAT(lines[22], HasSubstr("more"));
  EXPECT_THAT(lines[23], HasSubstr("q quit"));
}

TEST_F(TopTest, FitsInAnyScreen) {
  Take({SessionOf(1, 0, 0), SessionOf(2, 0, 0)});
  for (size_t columns : {1, 2, 10, 79, 300}) {
    for (size_t rows : {1, 2, 3, 4, 5, 6, 50}) {
      const auto lines = Draw({.columns = columns, .rows = rows});
      EXPECT_LE(lines.size(), rows);
      for (const std::string& line : lines) EXPECT_LE(line.size(), columns);
    }
  }
}

TEST_F(TopTest, NoClientWritesToTheTerminal) {
  Take({SessionOf(1, 0, 0, "\x1b[2J\r\nevil\x07")});
  const std::string text = DrawTop(model_, {.columns = 200, .rows = 24, .color = false}, kNow, 0);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_EQ(text.find('\r'), std::string::npos);
  EXPECT_EQ(text.find('\x07'), std::string::npos);
  EXPECT_THAT(text, HasSubstr("evil"));
}

TEST_F(TopTest, SaysThatWhatItShowsIsOld) {
  Take({SessionOf(1, 0, 0)});
  EXPECT_THAT(Draw({.columns = 80, .rows = 24, .trouble = "OLD: gone"})[1], HasSubstr("OLD: gone"));
}

TEST_F(TopTest, SaysThatTheDaemonIsDrained) {
  GetStatusResponse status = Status();
  status.mutable_drain()->mutable_since()->set_seconds(kNow - 60);
  status.mutable_drain()->set_reason("new kernel");
  status.mutable_drain()->set_sessions_left(2);
  model_.Take(now_, status, {});
  EXPECT_THAT(Draw({.columns = 80, .rows = 24})[1],
              testing::AllOf(HasSubstr("DRAINED"), HasSubstr("new kernel"), HasSubstr("2 sess")));
}

}  // namespace
}  // namespace mrctl
