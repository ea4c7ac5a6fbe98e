#include "daemon/service/frame_guard.h"

#include <gtest/gtest.h>

#include <string>

namespace mrd::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum : char {
  kData = 0,
  kHeaders = 1,
  kPriority = 2,
  kResetStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kMore = 9
};

constexpr uint32_t kMostStreams = 100;
constexpr uint64_t kMostBytes = 1 << 20;

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
    const char* const what = guard_.Received(bytes.data(), bytes.size(), now_);
    return what == nullptr ? "" : what;
  }

  // The server ends this call.
  void End(uint32_t stream) {
    const std::string trailers = Frame(kHeaders, 5, 1, stream);
    guard_.Sent(trailers.data(), trailers.size());
  }

  FrameGuard::Clock::time_point now_{};
  const std::shared_ptr<UserCalls> user_ = std::make_shared<UserCalls>();
  FrameGuard guard_{{kMostStreams, kMostBytes}, user_, now_};
};

TEST_F(FrameGuardTest, FramesAreFoundHoweverTheirBytesArrive) {
  guard_.Sending();
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
  guard_.Sending();
  EXPECT_EQ(Look(Frame(kSettings, 0, 1)), "");
  EXPECT_EQ(Look(Times(10, Frame(kHeaders, 30000) + Frame(kMore, 30000))), "");
  EXPECT_EQ(Look(Frame(kHeaders, 40000) + Frame(kMore, 40000)), "metadata of more than 64 KiB");
}

TEST_F(FrameGuardTest, CallsBeforeTheAcknowledgementAreCounted) {
  EXPECT_EQ(Look(Times(kMostStreams, Frame(kHeaders, 10))), "");
  EXPECT_NE(Look(Frame(kHeaders, 10)), "");
}

TEST_F(FrameGuardTest, CallsAfterTheAcknowledgementAreLeftToGrpc) {
  guard_.Sending();
  EXPECT_EQ(Look(Frame(kSettings, 0, 1)), "");
  for (uint32_t stream = 1; stream < 1000; stream += 2) {
    ASSERT_EQ(Look(Frame(kHeaders, 1, 0, stream)), "");
  }
}

TEST_F(FrameGuardTest, CallsOfAUserAreCountedOverAllItsConnectionsUntilTheyEnd) {
  constexpr uint32_t kMost = FrameGuard::kMostStreamsOfUser;
  {
    FrameGuard other({kMost, kMostBytes}, user_, now_);
    const std::string preface = kPreface;
    EXPECT_EQ(other.Received(preface.data(), preface.size(), now_), nullptr);
    for (uint32_t i = 0; i < kMost; ++i) {
      const std::string headers = Frame(kHeaders, 0, 0, 2 * i + 1);
      ASSERT_EQ(other.Received(headers.data(), headers.size(), now_), nullptr);
    }
    // Reset by the client; ended and reset by the server; only begun by it.
    const std::string reset = Frame(kResetStream, 4, 0, 1);
    EXPECT_EQ(other.Received(reset.data(), reset.size(), now_), nullptr);
    const std::string sent = Frame(kHeaders, 5, 0, 3) + Frame(kData, 100, 0, 3) +
                             Frame(kHeaders, 5, 1, 3) + Frame(kResetStream, 4, 0, 3) +
                             Frame(kHeaders, 5, 0, 5);
    for (const char& byte : sent) other.Sent(&byte, 1);
    EXPECT_EQ(Look(Frame(kHeaders, 0, 0, 1) + Frame(kHeaders, 0, 0, 3)), "");
    EXPECT_EQ(Look(Frame(kHeaders, 0, 0, 5)), "more calls than a user may have under way");
  }
  EXPECT_EQ(user_->streams, 3u) << "those of an ended connection count no more";
}

TEST_F(FrameGuardTest, RequestsThatAreNotCompleteCountUntilTheyAreOrTheirCallEnds) {
  const std::string most = Frame(kData, kMostBytes / 2) + Frame(kData, kMostBytes / 2);
  EXPECT_EQ(Look(Frame(kHeaders, 0) + most + Frame(kData, 0, 1)), "") << "complete";
  EXPECT_EQ(user_->request_bytes, 0u);
  EXPECT_EQ(Look(Frame(kHeaders, 0, 0, 3) + Frame(kData, kMostBytes, 0, 3)), "");
  End(3);
  EXPECT_EQ(Look(Frame(kHeaders, 0, 0, 5) + Frame(kData, kMostBytes, 0, 5) +
                 Frame(kResetStream, 4, 0, 5) + Frame(kData, kMostBytes, 0, 5)),
            "")
      << "of no call";
  EXPECT_EQ(
      Look(Frame(kHeaders, 0, 0, 7) + Frame(kHeaders, 0, 0, 9) + Frame(kData, kMostBytes, 0, 7)),
      "");
  EXPECT_EQ(Look(Frame(kData, 1, 0, 9)),
            "more of requests that are not complete than a user may have");
  guard_.SetOver();
  EXPECT_EQ(user_->request_bytes, 0u);
}

TEST_F(FrameGuardTest, AConnectionWithLittleDoesNotSufferForTheUsersOthers) {
  FrameGuard other({kMostStreams, kMostBytes}, user_, now_);
  const std::string bytes = kPreface + Frame(kHeaders, 0) + Frame(kData, kMostBytes);
  EXPECT_EQ(other.Received(bytes.data(), bytes.size(), now_), nullptr);
  EXPECT_EQ(Look(Frame(kHeaders, 0) + Frame(kData, kMostBytes - 1)), "");
  EXPECT_NE(Look(Frame(kData, 2)), "") << "more than its half";
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
  guard_.Sending();
  EXPECT_EQ(Look(Frame(kSettings, 0, 1)), "");
  for (uint32_t stream = 1; stream < 200000; stream += 2) {
    ASSERT_EQ(Look(Frame(kHeaders, 1, 0, stream) + Frame(kPing, 8)), "");
    End(stream);
  }
  EXPECT_EQ(Look(Times(FrameGuard::kMostPings - 1, Frame(kPing, 8))), "")
      << "calls save up no more";
  EXPECT_NE(Look(Frame(kPing, 8)), "");
}

TEST_F(FrameGuardTest, HeadersThatAreNoCallsEarnNoPing) {
  guard_.Sending();
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

class IdleFrameTest : public FrameGuardTest, public testing::WithParamInterface<std::string> {};

TEST_P(IdleFrameTest, HasARate) {
  guard_.Sending();
  EXPECT_EQ(Look(Times(FrameGuard::kMostIdle, GetParam())), "");
  now_ += seconds(1);
  EXPECT_EQ(Look(Times(FrameGuard::kIdleASecond, GetParam())), "");
  EXPECT_EQ(Look(GetParam()), "too many frames that bring nothing on");
}

INSTANTIATE_TEST_SUITE_P(, IdleFrameTest,
                         testing::Values(Frame(kPriority, 5), Frame(kWindowUpdate, 4),
                                         Frame(kData, 0), Frame(kData, 15), Frame(kData, 200, 8),
                                         Frame(kMore, 0), Frame(kPing, 8, 1),
                                         Frame(kSettings, 0, 1), Frame(77, 10)));

TEST_F(FrameGuardTest, HeadersThatAreNoCallsAreIdle) {
  guard_.Sending();
  // The acknowledgement is idle, too.
  EXPECT_EQ(
      Look(Frame(kSettings, 0, 1) + Times(FrameGuard::kMostIdle - 1, Frame(kHeaders, 0, 0, 2))),
      "");
  EXPECT_EQ(Look(Frame(kHeaders, 0, 0, 2)), "too many frames that bring nothing on");
}

TEST_F(FrameGuardTest, DataIsNotIdle) {
  EXPECT_EQ(Look(Times(50000, Frame(kData, 16) + Frame(kData, 0, 1))), "");
}

TEST_F(FrameGuardTest, EachCallMayHaveSomeWindowUpdates) {
  guard_.Sending();
  EXPECT_EQ(Look(Frame(kSettings, 0, 1)), "");
  for (uint32_t stream = 1; stream < 20000; stream += 2) {
    ASSERT_EQ(Look(Frame(kHeaders, 1, 0, stream) +
                   Times(FrameGuard::kIdleACall, Frame(kWindowUpdate, 4))),
              "");
    End(stream);
  }
}

TEST_F(FrameGuardTest, OnlyAFewGoAways) {
  EXPECT_EQ(Look(Times(FrameGuard::kMostGoAways, Frame(kGoAway, 8))), "");
  EXPECT_EQ(Look(Frame(kGoAway, 8)), "too many GOAWAY frames");
}

}  // namespace
}  // namespace mrd::service
