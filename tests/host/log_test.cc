#include "daemon/log.h"

#include <errno.h>
#include <gmock/gmock.h>

namespace mrd::log {
namespace {

TEST(LogTest, ALineHasItsFieldsBehindItsText) {
  const Fields fields = Fields().Session(12).Uid(1000).Pid(44).Reason("QUOTA_BYTES").Errno(ENOMEM);
  EXPECT_EQ(Line("refused", &fields),
            "refused  session=12 uid=1000 pid=44 reason=QUOTA_BYTES errno=ENOMEM");
  EXPECT_EQ(Line("ready", nullptr), "ready");
}

TEST(LogTest, APidThatIsHiddenIsSaidToBe) {
  const Fields fields = Fields().Pid(0);
  EXPECT_EQ(Line("x", &fields), "x  pid=hidden");
}

TEST(LogTest, AValueCannotLookLikeAnotherField) {
  const Fields fields = Fields().Device("a uid=0").Add("name", "\"").Add("empty", "");
  EXPECT_EQ(Line("x", &fields), "x  device=\"a uid=0\" name=\"\\\"\" empty=\"\"");
}

TEST(LogTest, WhatClientsSayCannotEndALineNorDriveATerminal) {
  EXPECT_EQ(Escaped("a\nb\r\t\x1b[31m\x7f", 100), "a\\nb\\r\\t\\x1b[31m\\x7f");
  EXPECT_EQ(Escaped(std::string("\0", 1), 100), "\\x00");
  EXPECT_EQ(Escaped("\xc2\x9b", 100), "\\xc2\\x9b") << "C1";
  EXPECT_EQ(Escaped("\xe2\x80\xae", 100), "\\xe2\\x80\\xae") << "turns text around";
  EXPECT_EQ(Escaped("\xff\xc0\x80\xed\xa0\x80", 100), "\\xff\\xc0\\x80\\xed\\xa0\\x80");
  EXPECT_EQ(Escaped("\xe2\x82", 100), "\\xe2\\x82") << "cut short";
  EXPECT_EQ(Escaped("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80", 100),
            "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80");
}

TEST(LogTest, ItsLengthIsBounded) {
  EXPECT_EQ(Escaped("abcdef", 3), "abc...");
  const Fields fields = Fields().Device(std::string(10 << 20, 'x'));
  EXPECT_LT(Line(std::string(10 << 20, '\n'), &fields).size(), 20'000u);
}

TEST(LogTest, FieldsHaveTheirNamesInTheJournal) {
  EXPECT_EQ(JournalName({"session", ""}), "MRD_SESSION");
  EXPECT_EQ(JournalName({"left_out", ""}), "MRD_LEFT_OUT");
  EXPECT_EQ(JournalName({"errno", ""}), "ERRNO");
}

}  // namespace
}  // namespace mrd::log
