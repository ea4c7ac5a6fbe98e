// The daemon's own life: who owns a directory, and an end in order.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

class ShutdownTest : public EachFabricTest {};
MRD_ON_EACH_FABRIC(ShutdownTest);

TEST_P(ShutdownTest, S24ASecondDaemonRefusesNamingTheFirstWhichStaysReachable) {
  StartThis();
  RawClient client(dir());
  const Memory memory(kPage);
  client.RegisterAll(memory);
  Process second = daemon().StartRival({.fabric = GetParam()});
  EXPECT_EQ(second.ExitStatus(), 1);
  const std::string said = ReadFile(daemon().base() + "/rival-log");
  EXPECT_NE(said.find("pid " + std::to_string(daemon().pid())), std::string::npos) << said;
  EXPECT_NE(said.find(dir()), std::string::npos) << said;
  // By sockets made before, and by new ones.
  EXPECT_TRUE(client.GetStatus().ok());
  EXPECT_EQ(client.ListLeases().response.leases_size(), 1);
  RawClient late(dir());
  EXPECT_TRUE(late.GetStatus().ok());
  RawClient late_admin(dir(), {.admin = true});
  EXPECT_TRUE(late_admin.ListSessions().ok());
}

TEST_P(ShutdownTest, S24StoppingTheSecondLeavesTheFirst) {
  StartThis();
  for (const int signal : {SIGTERM, SIGKILL}) {
    Process second = daemon().StartRival({.fabric = GetParam()});
    second.Kill(signal);
    ASSERT_TRUE(second.Wait(kPatience));
    RawClient client(dir());
    EXPECT_TRUE(client.GetStatus().ok());
  }
}

TEST_P(ShutdownTest, SocketsOfADaemonThatDiedAreTakenOver) {
  StartThis();
  DaemonProcess first({.fabric = GetParam()});
  first.process().Kill(SIGKILL);
  ASSERT_TRUE(first.process().Wait(kPatience));
  Process second = first.StartRival({.fabric = GetParam()});
  const bool serves = WaitUntil(kPatience, [&] {
    return ReadFile(first.base() + "/rival-log").find("ready") != std::string::npos;
  });
  ASSERT_TRUE(serves);
  {
    RawClient client(first.dir());
    EXPECT_TRUE(client.GetStatus().ok());
  }
  second.Kill(SIGTERM);
  EXPECT_EQ(second.ExitStatus(), 0);
}

TEST_P(ShutdownTest, AStartThatFailsLeavesNoDirectories) {
  StartThis();
  const std::string elsewhere = daemon().base() + "/elsewhere";
  Process second({.argv = {"tests/e2e/test_daemon", "--fabric=verbs", "--socket-dir=" + elsewhere},
                  .environment = {{"MRD_FAKE_VERBS", ""}},
                  .stderr_path = daemon().base() + "/second-log"});
  EXPECT_EQ(second.ExitStatus(), 1);
  const std::string said = ReadFile(daemon().base() + "/second-log");
  EXPECT_NE(said.find("--fabric"), std::string::npos) << said;
  struct stat directory;
  EXPECT_NE(stat(elsewhere.c_str(), &directory), 0);
  EXPECT_NE(stat((elsewhere + "-admin").c_str(), &directory), 0);
}

TEST_P(ShutdownTest, SigtermEndsEverythingInOrder) {
  StartThis();
  RawClient client(dir());
  const Memory memory(kPage);
  for (int i = 0; i < 10; ++i) client.RegisterAll(memory);
  ASSERT_TRUE(client.Listen(address()).ok());
  daemon().process().Kill(SIGTERM);
  const auto packet = client.attach().Receive();
  ASSERT_TRUE(packet && packet->has_event());
  EXPECT_EQ(packet->event().kind(), v1::AttachEvent::DRAINING);
  EXPECT_EQ(packet->event().cause(), v1::AttachEvent::SHUTDOWN);
  EXPECT_EQ(packet->event().sequence(), 1u);
  EXPECT_TRUE(client.attach().HangsUp());
  // Faked verbs tell what is left alive by status 3.
  ExpectEnd();
  struct stat directory;
  EXPECT_EQ(stat(dir().c_str(), &directory), 0) << "bind mounts of the directory stay good";
}

TEST_P(ShutdownTest, SigintIsSigterm) {
  StartThis();
  RawClient client(dir());
  daemon().process().Kill(SIGINT);
  EXPECT_TRUE(client.attach().HangsUp());
  ExpectEnd();
}

TEST_P(ShutdownTest, TheDirectoryAndSocketsHaveTheirModes) {
  StartThis();
  const auto mode = [](const std::string& path) {
    struct stat found;
    return stat(path.c_str(), &found) == 0 ? found.st_mode & 07777 : 0;
  };
  EXPECT_EQ(mode(dir()), 0755u);
  EXPECT_EQ(mode(dir() + "/mrd.sock"), 0660u);
  EXPECT_EQ(mode(dir() + "/attach.sock"), 0660u);
  EXPECT_EQ(mode(dir() + "-admin"), 0700u);
  EXPECT_EQ(mode(dir() + "-admin/attach.sock"), 0600u);
}

class SlowShutdownTest : public DaemonTest {
 protected:
  void SetUp() override {
    Start({.fabric = "verbs", .devices = "devices=fake0;fake0.reg_delay_ms=2000"});
    client_ = std::make_unique<RawClient>(dir());
    const uint64_t id = client_->Pass(memory_);
    call_ = std::thread([this, id] { answer_ = client_->Register(RequestFor(id, memory_)); });
    ASSERT_TRUE(WaitUntil(kPatience, [this] { return Look().regions == 1; }));
    daemon().process().Kill(SIGTERM);
    const auto packet = client_->attach().Receive();
    ASSERT_TRUE(packet && packet->has_event());
    ASSERT_EQ(packet->event().kind(), v1::AttachEvent::DRAINING);
  }
  void TearDown() override {
    if (call_.joinable()) call_.join();
    DaemonTest::TearDown();
  }

  const Memory memory_{kPage};
  std::unique_ptr<RawClient> client_;
  std::thread call_;
  Answer<v1::RegisterResponse> answer_;
};

TEST_F(SlowShutdownTest, WhoComesWhileItDrainsIsToldDraining) {
  const AttachSocket late(dir() + "/attach.sock");
  late.SendHello();
  const auto packet = late.Receive();
  ASSERT_TRUE(packet && packet->has_refusal());
  v1::ErrorDetail detail;
  detail.ParseFromString(packet->refusal().detail());
  EXPECT_EQ(detail.reason(), v1::DRAINING);
  EXPECT_EQ(packet->refusal().code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(client_->GetStatus().reason(), v1::SESSION_UNKNOWN);
  ExpectEnd();
}

TEST_F(SlowShutdownTest, ACallThatRunsIsTakenBackAndAnswered) {
  ExpectEnd();
  call_.join();
  EXPECT_EQ(answer_.reason(), v1::SESSION_UNKNOWN) << answer_.text();
}

TEST_F(SlowShutdownTest, ASecondSignalEndsItAtOnce) {
  daemon().process().Kill(SIGTERM);
  EXPECT_EQ(daemon().process().ExitStatus(Promised(seconds(1))), 1);
  Abandon();
}

using UnansweredShutdownTest = DaemonTest;

TEST_F(UnansweredShutdownTest, AConnectionThatIsNotAnsweredDoesNotKeepTheDaemon) {
  Start({.fabric = "verbs",
         .devices = "devices=fake0;fake0.resolve_route_delay_ms=60000",
         .set = "ending_ms=500"});
  RawClient client(dir());
  std::thread connect([&] { client.Connect("10.99.0.1", 1); });
  ASSERT_TRUE(WaitUntil(kPatience, [this] { return Look().endpoints == 1; }));
  daemon().process().Kill(SIGTERM);
  EXPECT_EQ(daemon().process().ExitStatus(Promised(seconds(5))), 1);
  EXPECT_NE(daemon().Log().find("1 sessions have not ended in 500 ms"), std::string::npos);
  connect.join();
  Abandon();
}

}  // namespace
}  // namespace mrd::e2e
