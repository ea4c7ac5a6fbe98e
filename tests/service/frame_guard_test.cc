#include "daemon/service/frame_guard.h"

#include <gtest/gtest.h>

#include <string>

namespace mrd::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum : char { kData = 0, kHeaders = 1, kResetStream = 3, kSettings = 4, kPing = 6, kMore = 9 };

constexpr uint32_t kMostStreams = 100;

std::string Frame(char type, size_t length, char flags = 0, uint32_t stream = 1) {
  std::string frame;
  for (int shift = 16; shift >= 0; shift -= 8) frame += static_cast<char>(length >> shift);
  frame += type;
  frame += flags;
  for (int shift = 24; shift >= 0; shift -= 8) frame += static_cast<char>(stream >> shift);
  return frame + std::string(length, '\xff');
}

std::string Times(int n, const std::string& text) {
  std::string all;
  for (int i = 0; i < n; ++i) all += text;
  return all;
}

class FrameGuardTest : public testing::Test {
 protected:
  FrameGuardTest() { EXPECT_EQ(Look(kPreface), ""); }

  // What was too much; empty: nothing.
  std::string Look(const std::string& bytes) {
    const char* const what = guard_.Look(bytes.data(), bytes.size(), now_);
    return what == nullptr ? "" : what;
  }

  FrameGuard::Clock::time_point now_{};
  FrameGuard guard_{kMostStreams, now_};
};

TEST_F(FrameGuardTest, FramesAreFoundHoweverTheirBytesArrive) {
  guard_.Sent();
  const std::string frames = Frame(kSettings, 0, 1) + Frame(kData, 70000) + Frame(kHeaders, 300) +
                             Frame(kMore, (64 << 10) - 299);
  for (size_t i = 0; i + 1 < frames.size(); ++i) {
    const std::string seen = Look(frames.substr(i, 1));
    if (seen.empty()) continue;
    // With the ninth byte of the last frame's header.
    EXPECT_EQ(i, frames.size() - ((64 << 10) - 299) - 1);
    EXPECT_EQ(seen, "metadata of more than 64 KiB");
    return;
  }
  FAIL() << "the last frame was not found";
}

TEST_F(FrameGuardTest, HeaderBlocksCountByThemselves) {
  guard_.Sent();
  EXPECT_EQ(Look(Frame(kSettings, 0, 1)), "");
  EXPECT_EQ(Look(Times(10, Frame(kHeaders, 30000) + Frame(kMore, 30000))), "");
  EXPECT_EQ(Look(Frame(kHeaders, 40000) + Frame(kMore, 40000)), "metadata of more than 64 KiB");
}

TEST_F(FrameGuardTest, CallsBeforeTheAcknowledgementAreCounted) {
  EXPECT_EQ(Look(Times(kMostStreams, Frame(kHeaders, 10))), "");
  EXPECT_NE(Look(Frame(kHeaders, 10)), "");
}

TEST_F(FrameGuardTest, CallsAfterTheAcknowledgementAreNot) {
  guard_.Sent();
  EXPECT_EQ(Look(Frame(kSettings, 0, 1) + Times(100000, Frame(kHeaders, 1))), "");
}

TEST_F(FrameGuardTest, NothingIsAcknowledgedThatWasNotSent) {
  EXPECT_EQ(Look(Frame(kSettings, 0, 1)), "it acknowledged settings before any were sent");
}

TEST_F(FrameGuardTest, PingsHaveARate) {
  EXPECT_EQ(Look(Times(FrameGuard::kMostPings - 1, Frame(kPing, 8)) + Frame(kSettings, 6)), "");
  now_ += seconds(1);
  EXPECT_EQ(Look(Times(FrameGuard::kPingsASecond, Frame(kPing, 8))), "");
  EXPECT_NE(Look(Frame(kPing, 8)), "");
}

TEST_F(FrameGuardTest, AnswersToPingsAreNoPings) {
  EXPECT_EQ(Look(Times(5000, Frame(kPing, 8, 1))), "");
}

TEST_F(FrameGuardTest, EachCallMayHaveAPing) {
  guard_.Sent();
  EXPECT_EQ(Look(Frame(kSettings, 0, 1)), "");
  for (uint32_t stream = 1; stream < 200000; stream += 2) {
    ASSERT_EQ(Look(Frame(kHeaders, 1, 0, stream) + Frame(kPing, 8)), "");
  }
  EXPECT_EQ(Look(Times(FrameGuard::kMostPings - 1, Frame(kPing, 8))), "")
      << "calls save up no more";
  EXPECT_NE(Look(Frame(kPing, 8)), "");
}

TEST_F(FrameGuardTest, HeadersThatAreNoCallsEarnNoPing) {
  guard_.Sent();
  EXPECT_EQ(Look(Frame(kSettings, 0, 1) + Frame(kHeaders, 1, 0, 7)), "");
  EXPECT_EQ(Look(Times(FrameGuard::kMostPings / 3, Frame(kHeaders, 1, 0, 8) + Frame(kPing, 8) +
                                                       Frame(kHeaders, 1, 0, 7) + Frame(kPing, 8) +
                                                       Frame(kHeaders, 1, 0, 5) + Frame(kPing, 8))),
            "");
  EXPECT_NE(Look(Times(2, Frame(kHeaders, 1, 0, 8) + Frame(kPing, 8))), "");
}

TEST_F(FrameGuardTest, ResetsHaveARate) {
  EXPECT_EQ(Look(Times(FrameGuard::kMostResets, Frame(kResetStream, 4))), "");
  now_ += milliseconds(10);
  EXPECT_EQ(Look(Times(FrameGuard::kResetsASecond / 100, Frame(kResetStream, 4))), "");
  EXPECT_NE(Look(Frame(kResetStream, 4)), "");
}

}  // namespace
}  // namespace mrd::service
