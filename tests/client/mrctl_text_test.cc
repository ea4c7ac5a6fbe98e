// Sizes, addresses and tables of mrctl.
#include <gtest/gtest.h>

#include "client/mrctl/bar.h"
#include "client/mrctl/table.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

TEST(ParseSize, TakesWhatPeopleWrite) {
  EXPECT_EQ(*ParseSize("1"), 1u);
  EXPECT_EQ(*ParseSize("4096"), 4096u);
  EXPECT_EQ(*ParseSize("4K"), 4096u);
  EXPECT_EQ(*ParseSize("4k"), 4096u);
  EXPECT_EQ(*ParseSize("64M"), 64u << 20);
  EXPECT_EQ(*ParseSize("64MiB"), 64u << 20);
  EXPECT_EQ(*ParseSize("64mb"), 64u << 20);
  EXPECT_EQ(*ParseSize("1G"), 1u << 30);
  EXPECT_EQ(*ParseSize("2T"), uint64_t{2} << 40);
  EXPECT_EQ(*ParseSize("18446744073709551615"), UINT64_MAX);
}

TEST(ParseSize, RefusesTheRest) {
  for (const char* text : {"", "0", "0K", "-1", "4X", "4KK", "K", "4 K", "1.5G", "0x10", "4Kx",
                           "18446744073709551616", "17179869184G", "16E"}) {
    EXPECT_FALSE(ParseSize(text).ok()) << text;
  }
}

TEST(ParseNumber, KeepsToItsBounds) {
  EXPECT_EQ(*ParseNumber("1", 1, 10), 1u);
  EXPECT_EQ(*ParseNumber("10", 1, 10), 10u);
  for (const char* text : {"", "0", "11", "-1", "1.5", "0x1", "two", "18446744073709551616"}) {
    EXPECT_FALSE(ParseNumber(text, 1, 10).ok()) << text;
  }
}

TEST(ParseSeconds, TakesPartsOfThem) {
  EXPECT_EQ(*ParseSeconds("0"), 0);
  EXPECT_EQ(*ParseSeconds("0.5"), 0.5);
  EXPECT_EQ(*ParseSeconds("5m"), 300);
  for (const char* text : {"", "-1", "abc", "1 s", "nan", "inf", "1e10"}) {
    EXPECT_FALSE(ParseSeconds(text).ok()) << text;
  }
}

TEST(FormatSize, IsShortAndExactWhereItCanBe) {
  EXPECT_EQ(FormatSize(0), "0 B");
  EXPECT_EQ(FormatSize(1023), "1023 B");
  EXPECT_EQ(FormatSize(4096), "4 KiB");
  EXPECT_EQ(FormatSize(64 << 20), "64 MiB");
  EXPECT_EQ(FormatSize(1536), "1.5 KiB");
  EXPECT_EQ(FormatSize(UINT64_MAX), "16.0 EiB");
}

TEST(ParseHostPort, KnowsBothFamilies) {
  EXPECT_EQ(ParseHostPort("10.0.0.1:7471")->host, "10.0.0.1");
  EXPECT_EQ(ParseHostPort("10.0.0.1:7471")->port, 7471);
  EXPECT_EQ(ParseHostPort("[fe80::1]:7471")->host, "fe80::1");
  EXPECT_EQ(ParseHostPort("[fe80::1]:7471")->port, 7471);
  EXPECT_EQ(ParseHostPort("[::]")->port, 0);
  EXPECT_EQ(ParseHostPort(":80")->host, "");
  EXPECT_EQ(ParseHostPort(":80")->port, 80);
  EXPECT_EQ(ParseHostPort("10.0.0.1")->port, 0);
}

TEST(ParseHostPort, RefusesTheRest) {
  for (const char* text : {"fe80::1", "::1:80", "[fe80::1", "[::1]80", "1.2.3.4:", "1.2.3.4:x",
                           "1.2.3.4:65536", "1.2.3.4:-1", "1.2.3.4:80x"}) {
    EXPECT_FALSE(ParseHostPort(text).ok()) << text;
  }
}

TEST(FormatHostPort, BracketsIpv6) {
  EXPECT_EQ(FormatHostPort("10.0.0.1", 7), "10.0.0.1:7");
  EXPECT_EQ(FormatHostPort("fe80::1", 7), "[fe80::1]:7");
}

TEST(ParseAccess, KnowsPresetsAndFlags) {
  using mrd::v1::Access;
  EXPECT_EQ(ParseAccess("msgs")->preset(), Access::REG_MSGS);
  EXPECT_EQ(ParseAccess("read")->preset(), Access::REG_READ);
  EXPECT_EQ(ParseAccess("write")->preset(), Access::REG_WRITE);
  EXPECT_EQ(ParseAccess("write")->flags_size(), 0);
  const auto flags = *ParseAccess("local_write,REMOTE_ATOMIC");
  EXPECT_EQ(flags.preset(), Access::PRESET_UNSPECIFIED);
  ASSERT_EQ(flags.flags_size(), 2);
  EXPECT_EQ(flags.flags(0), mrd::v1::LOCAL_WRITE);
  EXPECT_EQ(flags.flags(1), mrd::v1::REMOTE_ATOMIC);
  const auto both = *ParseAccess("read,write");
  EXPECT_EQ(both.preset(), Access::REG_READ);
  ASSERT_EQ(both.flags_size(), 1);
  EXPECT_EQ(both.flags(0), mrd::v1::REMOTE_WRITE);
}

TEST(ParseAccess, RefusesTheRest) {
  for (const char* text : {"", "rw", "read,", ",", "access_flag_unspecified", "reg_read"}) {
    EXPECT_FALSE(ParseAccess(text).ok()) << text;
  }
}

TEST(FormatAge, GrowsCoarser) {
  EXPECT_EQ(FormatAge(-3), "0 s");
  EXPECT_EQ(FormatAge(59), "59 s");
  EXPECT_EQ(FormatAge(60), "1 min");
  EXPECT_EQ(FormatAge(3 * 3600 + 12 * 60), "3 h 12 min");
  EXPECT_EQ(FormatAge(9 * 86400 + 4 * 3600), "9 d 4 h");
}

TEST(Table, SetsNumbersToTheRightAndEndsLinesClean) {
  Table table({"NAME", ">SIZE", "NOTE"});
  EXPECT_TRUE(table.empty());
  table.Add({"a", "1", ""});
  table.Add({"long-name", "100", "x"});
  EXPECT_EQ(table.Text(),
            "NAME       SIZE  NOTE\n"
            "a             1\n"
            "long-name   100  x\n");
}

TEST(Table, LetsNoNameWriteToTheTerminal) {
  Table table({"NAME"});
  table.Add({"\x1b[2Jevil\n"});
  EXPECT_EQ(table.Text(), "NAME\n?[2Jevil?\n");
}

TEST(ParseDuration, TakesWhatPeopleWrite) {
  using namespace std::chrono_literals;
  EXPECT_EQ(*ParseDuration("10s"), 10s);
  EXPECT_EQ(*ParseDuration("90"), 90s);
  EXPECT_EQ(*ParseDuration("1.5s"), 1500ms);
  EXPECT_EQ(*ParseDuration("200ms"), 200ms);
  EXPECT_EQ(*ParseDuration("5m"), 5min);
  EXPECT_EQ(*ParseDuration("2h"), 2h);
  EXPECT_EQ(*ParseDuration("365d"), 365 * 24h);
  for (const char* text : {"", "0", "0s", "-1s", "1w", "s", "1 s", "1s1", "366d", "1e9", "1h30m",
                           "nan", "inf", "0x10", ".", "99999999999999999999d"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(FormatShortAge, HasAtMostSixCharacters) {
  EXPECT_EQ(FormatShortAge(-5), "0s");
  EXPECT_EQ(FormatShortAge(59), "59s");
  EXPECT_EQ(FormatShortAge(60), "1m");
  EXPECT_EQ(FormatShortAge(23 * 3600 + 59 * 60), "23h59m");
  EXPECT_EQ(FormatShortAge(99 * 86400 + 23 * 3600), "99d23h");
  EXPECT_EQ(FormatShortAge(412 * 86400), "412d");
}

TEST(FormatRate, IsShort) {
  EXPECT_EQ(FormatRate(0), "0");
  EXPECT_EQ(FormatRate(0.04), "0");
  EXPECT_EQ(FormatRate(12.34), "12.3");
  EXPECT_EQ(FormatRate(99.96), "100");
  EXPECT_EQ(FormatRate(123456.7), "123457");
}

TEST(Cut, KeepsToTheWidthAndToWholeCharacters) {
  EXPECT_EQ(Cut("abcdef", 0), "abcdef");
  EXPECT_EQ(Cut("abcdef", 6), "abcdef");
  EXPECT_EQ(Cut("abcdef", 4), "abc~");
  EXPECT_EQ(Cut("abcdef", 1), "~");
  EXPECT_EQ(Cut("\u00e4\u00f6\u00fcx", 3), "\u00e4\u00f6~");
}

TEST(BarLine, FitsAndSaysHundredOnlyOfTheWhole) {
  for (size_t width : {20, 40, 80, 200}) {
    for (uint64_t done : {0ul, 1ul, 500ul, 999ul, 1000ul, 2000ul}) {
      EXPECT_LE(BarLine("registering", done << 20, 1000ul << 20, width).size(), width);
    }
  }
  EXPECT_EQ(BarLine("x", 0, 100, 40), "x [.................]   0%  0 B of 100 B");
  EXPECT_EQ(BarLine("x", 50, 100, 40), "x [########........]  50%  50 B of 100 B");
  EXPECT_NE(BarLine("x", 99999, 100000, 80).find(" 99%"), std::string::npos);
  EXPECT_NE(BarLine("x", 100000, 100000, 80).find("100%"), std::string::npos);
}

}  // namespace
}  // namespace mrctl
