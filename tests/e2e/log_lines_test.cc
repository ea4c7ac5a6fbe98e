// What an operator reads: who came to an end and what was freed, who was refused what; bounded,
// whatever clients do, and never a token.
#include <signal.h>

#include <algorithm>
#include <thread>

#include "absl/strings/escaping.h"
#include "gmock/gmock.h"
#include "tests/e2e/daemon_test.h"
#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

class LogLinesTest : public DaemonTest {
 protected:
  bool LogSays(const std::string& text, milliseconds within = kPatience) {
    return WaitUntil(within, [&] { return daemon().Log().find(text) != std::string::npos; });
  }
  size_t LinesWith(const std::string& text) {
    std::istringstream log(daemon().Log());
    size_t count = 0;
    for (std::string line; std::getline(log, line);) {
      count += line.find(text) != std::string::npos;
    }
    return count;
  }
  void ExpectPrintable() {
    const std::string log = daemon().Log();
    EXPECT_TRUE(std::all_of(log.begin(), log.end(), [](char byte) {
      return byte == '\n' || (byte >= 0x20 && byte < 0x7f);
    })) << log;
  }
};

TEST_F(LogLinesTest, ADeathSaysWhoseItWasWhatWasFreedAndHowLongItTook) {
  Start();
  Process holder({.argv = {"tests/e2e/test_client", dir()}});
  ASSERT_EQ(holder.Ask("attach").substr(0, 2), "ok");
  ASSERT_EQ(holder.Ask("buffer 1048576"), "ok");
  ASSERT_EQ(holder.Ask("register 3").substr(0, 2), "ok");
  const std::string pid = std::to_string(holder.pid());
  holder.Kill(SIGKILL);
  ASSERT_TRUE(LogSays("session ended"));
  EXPECT_THAT(daemon().Log(),
              ContainsRegex(" info session ended, .*: freed 3 regions of [0-9]+ bytes, 0 "
                            "endpoints, 1 buffers within [0-9.]+ ms \\(test_client\\)  "
                            "session=[0-9]+ uid=0 pid=" +
                            pid + " reason=(hang-up|pidfd)\n"));
}

TEST_F(LogLinesTest, ARefusalByALimitSaysWhoAndWhy) {
  Start({.set = "regions=1"});
  RawClient client(dir());
  const Memory memory(kPage);
  client.RegisterAll(memory);
  ExpectRefusal(client.Register(RequestFor(client.Pass(memory), memory)), v1::QUOTA_REGIONS);
  ASSERT_TRUE(LogSays("Register refused"));
  EXPECT_THAT(daemon().Log(),
              ContainsRegex(" warning Register refused: 1 more would pass the limit of 1 regions "
                            "of uid 0.*  session=" +
                            std::to_string(client.session_id()) +
                            " uid=0 pid=[0-9]+ reason=QUOTA_REGIONS method=Register\n"));
  // What is the client's own doing is not for the operator.
  ExpectRefusal(client.Deregister({1}), v1::LEASE_UNKNOWN);
  EXPECT_THAT(daemon().Log(), Not(HasSubstr("LEASE_UNKNOWN")));
}

TEST_F(LogLinesTest, ALapseSaysWhoseTheLeaseWas) {
  Start({.policy = "rules { name: \"brief\" ttl { min { nanos: 1 } } }"});
  RawClient client(dir());
  const Memory memory(kPage);
  auto request = RequestFor(client.Pass(memory), memory);
  request.mutable_ttl()->set_nanos(1000000);
  const auto made = client.Register(request);
  ASSERT_TRUE(made.ok()) << made.text();
  ASSERT_TRUE(LogSays("lapsed"));
  EXPECT_THAT(
      daemon().Log(),
      ContainsRegex(" info 1 lease was not renewed in time, and lapsed  session=" +
                    std::to_string(client.session_id()) + " uid=0 pid=[0-9]+ .*reason=lapsed"));
  EXPECT_THAT(daemon().Log(),
              HasSubstr("lease=" + std::to_string(made.response.leases(0).lease_id())));
}

TEST_F(LogLinesTest, FewDescriptorsAreSaidToBeTheCauseOfLowerLimits) {
  Start({.set = "nofile=4096"});
  EXPECT_THAT(daemon().Log(), HasSubstr("LimitNOFILE (ulimit -n) is 4096: a user has at most 256 "
                                        "sessions"));
}

TEST_F(LogLinesTest, AFloodOfRefusalsIsAFewLinesAndOneSaysHowManyWereLeftOut) {
  Start({.set = "regions=0"});
  RawClient client(dir());
  const Memory memory(kPage);
  const uint64_t id = client.Pass(memory);
  for (int i = 0; i < 300; ++i) {
    ExpectRefusal(client.Register(RequestFor(id, memory)), v1::QUOTA_REGIONS);
  }
  // Ten at once, then one in six seconds.
  EXPECT_GE(LinesWith("Register refused"), 10u);
  EXPECT_LE(LinesWith("Register refused"), kSanitized ? 40u : 15u);
  // Another session is heard.
  RawClient other(dir());
  ExpectRefusal(other.Register(RequestFor(other.Pass(memory), memory)), v1::QUOTA_REGIONS);
  EXPECT_TRUE(LogSays(" session=" + std::to_string(other.session_id()) + " "));
  std::this_thread::sleep_for(seconds(7));
  ExpectRefusal(client.Register(RequestFor(id, memory)), v1::QUOTA_REGIONS);
  EXPECT_TRUE(LogSays(" lines of this session were left out before)"));
  EXPECT_THAT(daemon().Log(), ContainsRegex(" left_out=[0-9]+\n"));
}

TEST_F(LogLinesTest, SessionsThatComeAndGoLeaveNoLineAndThoseThatLeaveRegionsABoundedNumber) {
  Start();
  const std::string before = daemon().Log();
  for (int i = 0; i < Scaled(100); ++i) RawClient(dir()).HangUp();
  ExpectNothingHeld();
  EXPECT_EQ(daemon().Log(), before);
  const Memory memory(kPage);
  for (int i = 0; i < 100; ++i) {
    RawClient client(dir());
    client.RegisterAll(memory);
  }
  ExpectNothingHeld();
  EXPECT_GE(LinesWith("session ended"), 40u);
  EXPECT_LE(LinesWith("session ended"), kSanitized ? 100u : 60u);
}

TEST_F(LogLinesTest, AtLevelDebugEveryCallHasItsLine) {
  Start({.log_level = "debug"});
  RawClient client(dir());
  const Memory memory(kPage);
  client.RegisterAll(memory);
  ExpectRefusal(client.Deregister({1}), v1::LEASE_UNKNOWN);
  const std::string session =
      " session=" + std::to_string(client.session_id()) + " uid=0 pid=[0-9]+";
  EXPECT_THAT(daemon().Log(), ContainsRegex(" debug session attached: .*" + session + "\n"));
  EXPECT_THAT(daemon().Log(),
              ContainsRegex(" debug call " + session + " method=Register code=OK us=[0-9]+\n"));
  EXPECT_THAT(daemon().Log(),
              ContainsRegex(" debug call refused: .*" + session +
                            " method=Deregister code=NOT_FOUND us=[0-9]+ reason=LEASE_UNKNOWN\n"));
}

TEST_F(LogLinesTest, WhatClientsSayIsEscaped) {
  Start({.log_level = "debug"});
  RawClient client(dir(), {.name = "na=me \"x\""});
  const Memory memory(kPage);
  auto request = RequestFor(client.Pass(memory), memory);
  request.add_devices("x\n2026-01-01T00:00:00.000 error forged\x1b[31m\x7f\xc2\x9b");
  ExpectRefusal(client.Register(request), v1::DEVICE_UNKNOWN);
  EXPECT_TRUE(LogSays("x?2026-01-01T00:00:00.000 error forged?[31m???"));
  EXPECT_EQ(LinesWith("\n2026-01-01"), 0u);
  ExpectPrintable();
}

TEST_F(LogLinesTest, ATokenIsNeverLogged) {
  Start({.set = "regions=1", .log_level = "debug"});
  std::vector<std::string> tokens = {admin().token()};
  const Memory memory(kPage);
  for (int i = 0; i < 20; ++i) {
    RawClient client(dir());
    tokens.push_back(client.token());
    const uint64_t id = client.Pass(memory);
    client.Register(RequestFor(id, memory));
    client.Register(RequestFor(id, memory));
    client.GetMetrics();
    client.Release({4711});
    if (i % 2 == 0) client.attach().SendBytes("nonsense");
    const std::string guess = client.token().substr(0, 15) + "x";
    client.set_token(guess);
    tokens.push_back(guess);
    EXPECT_FALSE(client.ListLeases().ok());
  }
  ExpectNothingHeld();
  const std::string log = daemon().Log();
  for (const std::string& token : tokens) {
    ASSERT_EQ(token.size(), 16u);
    for (const std::string& form :
         {token, absl::BytesToHexString(token), absl::Base64Escape(token),
          absl::WebSafeBase64Escape(token), std::string(absl::CHexEscape(token)),
          std::string(absl::CEscape(token))}) {
      // Half of it would help to guess.
      EXPECT_EQ(log.find(form.substr(0, form.size() / 2)), std::string::npos) << form;
    }
  }
}

}  // namespace
}  // namespace mrd::e2e
