// The metrics of the real daemon, by every way out, after what real clients did.
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "gmock/gmock.h"
#include "tests/e2e/daemon_test.h"
#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class MetricsTest : public EachFabricTest {
 protected:
  void StartServing(const std::string& set = "") {
    StartThis({.set = set, .args = {"--metrics-listen=unix:@/metrics.sock"}});
  }

  std::string socket_path() { return daemon().base() + "/metrics.sock"; }
  std::string Scrape() {
    const UniqueFd peer(Connect(socket_path(), SOCK_STREAM));
    const std::string request = "GET /metrics HTTP/1.1\r\nHost: mrd\r\n\r\n";
    EXPECT_EQ(send(peer.get(), request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string answer;
    char bytes[4096];
    for (ssize_t length; (length = recv(peer.get(), bytes, sizeof bytes, 0)) > 0;) {
      answer.append(bytes, length);
    }
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    return answer;
  }
  // The value of a series; nothing: it is not there.
  std::optional<double> Value(const std::string& series) {
    const auto answer = admin().GetMetrics();
    EXPECT_TRUE(answer.ok()) << answer.text();
    const std::string text = "\n" + answer.response.text();
    const size_t found = text.find("\n" + series + " ");
    if (found == std::string::npos) return std::nullopt;
    return std::stod(text.substr(found + series.size() + 2));
  }
  // They are up to a second old.
  void ExpectValue(const std::string& series, std::optional<double> expected) {
    EXPECT_TRUE(WaitUntil(kPatience, [&] { return Value(series) == expected; }))
        << series << " is " << Value(series).value_or(-1);
  }
  std::string OnDevice(const std::string& name) {
    return name + "{uid=\"0\",device=\"" + device() + "\",domain=\"private\"}";
  }
};
MRD_ON_EACH_FABRIC(MetricsTest);

TEST_P(MetricsTest, CountWhatClientsHoldAndDo) {
  StartServing();
  RawClient client(dir());
  const Memory memory(3 * kPage);
  const auto lease = client.RegisterAll(memory);
  ExpectValue("mrd_sessions{uid=\"0\"}", 2);
  ExpectValue(OnDevice("mrd_regions"), 1);
  ExpectValue(OnDevice("mrd_pinned_bytes"), 3 * kPage);
  ExpectValue("mrd_booked_bytes{uid=\"0\"}", 3 * kPage);
  ExpectValue("mrd_buffers{uid=\"0\"}", 1);
  ExpectValue("mrd_calls_total{method=\"Register\",code=\"OK\"}", 1);
  ExpectValue("mrd_call_duration_seconds_count{method=\"Register\"}", 1);
  ExpectValue("mrd_call_duration_seconds_bucket{method=\"Register\",le=\"60\"}", 1);
  ASSERT_TRUE(client.Listen(address()).ok());
  ExpectValue("mrd_endpoints{uid=\"0\"}", 1);
  ASSERT_TRUE(client.Deregister({lease.lease_id()}).ok());
  ExpectValue("mrd_leases_ended_total{cause=\"deregistered\"}", 1);
  ExpectValue(OnDevice("mrd_regions"), std::nullopt);
}

TEST_P(MetricsTest, CountRefusalsByReason) {
  StartServing("regions=1");
  RawClient client(dir());
  const Memory memory(kPage);
  client.RegisterAll(memory);
  for (int i = 0; i < 3; ++i) {
    ExpectRefusal(client.Register(RequestFor(client.Pass(memory), memory)), v1::QUOTA_REGIONS);
  }
  ExpectRefusal(client.Deregister({1}), v1::LEASE_UNKNOWN);
  ExpectValue("mrd_refusals_total{reason=\"QUOTA_REGIONS\"}", 3);
  ExpectValue("mrd_refusals_total{reason=\"LEASE_UNKNOWN\"}", 1);
  ExpectValue("mrd_calls_total{method=\"Register\",code=\"RESOURCE_EXHAUSTED\"}", 3);
  const AttachSocket stranger(dir() + "/attach.sock");
  v1::ClientPacket packet;
  packet.mutable_hello();
  ASSERT_TRUE(stranger.Send(packet));
  EXPECT_EQ(stranger.ReceiveRefusal(), v1::UNSUPPORTED);
  ExpectValue("mrd_refusals_total{reason=\"UNSUPPORTED\"}", 1);
}

TEST_P(MetricsTest, CountDeathsAndHowLongTheyTook) {
  StartServing();
  const double before = Value("mrd_session_cleanup_seconds_count").value();
  Process holder({.argv = {"tests/e2e/test_client", dir()}});
  ASSERT_EQ(holder.Ask("attach").substr(0, 2), "ok");
  ASSERT_EQ(holder.Ask("buffer 1048576"), "ok");
  ASSERT_EQ(holder.Ask("register 100").substr(0, 2), "ok");
  ExpectValue(OnDevice("mrd_regions"), 100);
  holder.Kill(SIGKILL);
  ASSERT_TRUE(holder.Wait(kPatience));
  ExpectNothingHeld();
  ExpectValue("mrd_leases_ended_total{cause=\"session_ended\"}", 100);
  ExpectValue("mrd_session_cleanup_seconds_count", before + 1);
  ExpectValue("mrd_regions", std::nullopt);
}

TEST_P(MetricsTest, ADeathThatAForkHidesIsKnownByThePidfd) {
  StartServing();
  Process holder({.argv = {"tests/e2e/test_client", dir()}});
  ASSERT_EQ(holder.Ask("attach").substr(0, 2), "ok");
  const std::string child = holder.Ask("fork");
  ASSERT_EQ(child.substr(0, 3), "ok ");
  holder.Kill(SIGKILL);
  ASSERT_TRUE(holder.Wait(kPatience));
  ExpectValue("mrd_sessions_ended_total{cause=\"pidfd\"}", 1);
  KillStranger(static_cast<pid_t>(std::stol(child.substr(3))), "test_client");
}

TEST_P(MetricsTest, AClientThatBreaksTheProtocolIsCountedAsThat) {
  StartServing();
  RawClient client(dir());
  client.attach().SendBytes("nonsense");
  EXPECT_TRUE(client.attach().HangsUp());
  ExpectValue("mrd_sessions_ended_total{cause=\"protocol\"}", 1);
}

TEST_P(MetricsTest, AreForAdminsAlone) {
  StartServing();
  RawClient client(dir());
  const auto answer = client.GetMetrics();
  ExpectRefusal(answer, v1::POLICY_DENIED);
  EXPECT_EQ(answer.response.text(), "");
  struct stat found;
  ASSERT_EQ(stat(socket_path().c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0660u);
}

TEST_P(MetricsTest, MrctlAndTheSocketShowTheSame) {
  StartServing();
  RawClient client(dir());
  const Memory memory(kPage);
  client.RegisterAll(memory);
  ExpectValue(OnDevice("mrd_regions"), 1);
  Process mrctl({.argv = {"client/mrctl/mrctl", "metrics", "--socket-dir=" + dir()}});
  const std::string shown = mrctl.ReadAll();
  EXPECT_EQ(mrctl.ExitStatus(), 0);
  for (const std::string& text : {shown, Scrape()}) {
    EXPECT_THAT(text, HasSubstr("\n" + OnDevice("mrd_regions") + " 1\n"));
    EXPECT_THAT(text, HasSubstr("# TYPE mrd_call_duration_seconds histogram\n"));
  }
}

TEST_P(MetricsTest, TheFileIsWholeWheneverItIsReadAndGoesInTheEnd) {
  StartThis({.set = "textfile_ms=10", .args = {"--metrics-textfile=@/mrd.prom"}});
  const std::string path = daemon().base() + "/mrd.prom";
  RawClient client(dir());
  const Memory memory(kPage);
  client.RegisterAll(memory);
  ASSERT_TRUE(WaitUntil(kPatience, [&] {
    return ReadFile(path).find("\n" + OnDevice("mrd_regions") + " 1\n") != std::string::npos;
  }));
  for (int i = 0; i < Scaled(2000); ++i) {
    const std::string text = ReadFile(path);
    ASSERT_THAT(text, StartsWith("# HELP mrd_build_info "));
    ASSERT_THAT(text, HasSubstr("\nmrd_registrar_wait_seconds_sum "));
    ASSERT_EQ(text.back(), '\n');
  }
  struct stat found;
  ASSERT_EQ(stat(path.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0644u);
  client.HangUp();
  ExpectNothingHeld();
  Stop();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST_P(MetricsTest, PeersThatMeanItIllDisturbNobody) {
  StartServing();
  std::vector<UniqueFd> mute;
  for (int i = 0; i < 100; ++i) {
    mute.push_back(Connect(socket_path(), SOCK_STREAM));
    const std::string begin = i % 2 == 0 ? "GET /met" : "GET /metrics HTTP/1.1\r\n\r\n";
    send(mute.back().get(), begin.data(), begin.size(), MSG_NOSIGNAL);
  }
  std::atomic<bool> over = false;
  std::thread flood([&] {
    while (!over) Scrape();
  });
  RawClient client(dir());
  const Memory memory(kPage);
  const uint64_t id = client.Pass(memory);
  std::vector<Clock::duration> took;
  for (int i = 0; i < Scaled(500); ++i) {
    const auto before = Clock::now();
    const auto answer = client.Register(RequestFor(id, memory));
    took.push_back(Clock::now() - before);
    ASSERT_TRUE(answer.ok()) << answer.text();
    ASSERT_TRUE(client.Deregister({answer.response.leases(0).lease_id()}).ok());
  }
  over = true;
  flood.join();
  std::nth_element(took.begin(), took.begin() + took.size() / 2, took.end());
  EXPECT_LT(took[took.size() / 2], Promised(milliseconds(50)));
  EXPECT_THAT(Scrape(), HasSubstr("mrd_sessions"));
  mute.clear();
}

TEST_P(MetricsTest, WithoutTheOptionNothingListensNorIsWritten) {
  StartThis();
  EXPECT_NE(access(socket_path().c_str(), F_OK), 0);
  EXPECT_TRUE(Value("mrd_sessions{uid=\"0\"}").has_value());
  EXPECT_THAT(daemon().Log(), Not(HasSubstr("metrics are served")));
}

}  // namespace
}  // namespace mrd::e2e
