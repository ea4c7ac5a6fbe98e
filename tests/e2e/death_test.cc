// A client dies, at any moment, and all that it held is gone within a second.
#include <signal.h>

#include <future>
#include <random>
#include <thread>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

constexpr const char* kSteps[] = {"connect", "hello", "pass", "reg", "extend", "dereg"};

class DeathTest : public EachFabricTest {
 protected:
  Process StartClient() { return Process({.argv = {"tests/e2e/test_client", dir()}}); }
  // A client of the library's with a registered buffer.
  Process StartHolder() {
    Process client = StartClient();
    EXPECT_EQ(client.Ask("attach").substr(0, 2), "ok");
    EXPECT_EQ(client.Ask("buffer 1048576"), "ok");
    EXPECT_EQ(client.Ask("register 100").substr(0, 2), "ok");
    EXPECT_EQ(Look().regions, 100u);
    return client;
  }
  static pid_t PidIn(const std::string& answer) {
    EXPECT_EQ(answer.substr(0, 3), "ok ") << answer;
    return static_cast<pid_t>(std::stol(answer.substr(3)));
  }
};
MRD_ON_EACH_FABRIC(DeathTest);

TEST_P(DeathTest, S19SigkillAfterEachStep) {
  StartThis();
  for (size_t last = 0; last < std::size(kSteps); ++last) {
    SCOPED_TRACE(kSteps[last]);
    Process client = StartClient();
    for (size_t step = 0; step <= last; ++step) ASSERT_EQ(client.Ask(kSteps[step]), "ok");
    if (std::string(kSteps[last]) == "reg") {
      // Once at least it must be seen to hold something.
      ASSERT_TRUE(WaitUntil(kPatience, [this] { return Look().regions == 64; }));
    }
    client.Kill(SIGKILL);
    ASSERT_TRUE(client.Wait(kPatience));
    ExpectNothingHeld(Promised(seconds(1)));
  }
}

TEST_P(DeathTest, S19SigkillInTheMiddleOfEachStep) {
  StartThis();
  std::mt19937 random(19);
  for (int round = 0; round < Scaled(10); ++round) {
    for (size_t last = 0; last < std::size(kSteps); ++last) {
      Process client = StartClient();
      for (size_t step = 0; step < last; ++step) ASSERT_EQ(client.Ask(kSteps[step]), "ok");
      client.Write(kSteps[last]);
      const auto moment = std::chrono::microseconds(random() % 4000);
      std::this_thread::sleep_for(moment);
      client.Kill(SIGKILL);
      ASSERT_TRUE(client.Wait(kPatience));
      SCOPED_TRACE(std::string(kSteps[last]) + " and " + std::to_string(moment.count()) + " us");
      ExpectNothingHeld(Promised(seconds(1)));
    }
  }
}

TEST_P(DeathTest, AClientOfTheLibrarysDies) {
  StartThis();
  Process client = StartHolder();
  client.Kill(SIGKILL);
  ASSERT_TRUE(client.Wait(kPatience));
  ExpectNothingHeld(Promised(seconds(1)));
}

TEST_P(DeathTest, AStoppedClientIsNoDeadOne) {
  StartThis();
  Process client = StartHolder();
  client.Kill(SIGSTOP);
  const auto until = Clock::now() + milliseconds(500);
  while (Clock::now() < until) ASSERT_EQ(Look().regions, 100u);
  client.Kill(SIGCONT);
  EXPECT_EQ(client.Ask("deregister"), "ok");
}

TEST_P(DeathTest, S27AChildThatInheritedEverythingHidesNothing) {
  StartThis();
  Process client = StartHolder();
  const pid_t child = PidIn(client.Ask("sleep"));
  ASSERT_TRUE(WaitUntil(kPatience, [child] {
    return ReadFile("/proc/" + std::to_string(child) + "/comm") == "sleep\n";
  }));
  client.Kill(SIGKILL);
  ASSERT_TRUE(client.Wait(kPatience));
  // The child keeps the connections open: their descriptors, and nothing else.
  const bool gone = WaitUntil(Promised(seconds(1)), [this] {
    const Holdings now = Look();
    return now.sessions == 1 && now.listed_sessions == 1 && now.regions == 0 && now.buffers == 0 &&
           now.shared_mappings == baseline().shared_mappings &&
           now.on_devices == baseline().on_devices;
  });
  EXPECT_TRUE(gone) << Look();
  KillStranger(child, "sleep");
}

TEST_P(DeathTest, S27SoItIsOnKernelsThatGiveNoPidfdOfAPeer) {
  StartThis({.set = "peer_pidfd=0"});
  Process client = StartHolder();
  const pid_t child = PidIn(client.Ask("sleep"));
  ASSERT_TRUE(WaitUntil(kPatience, [child] {
    return ReadFile("/proc/" + std::to_string(child) + "/comm") == "sleep\n";
  }));
  client.Kill(SIGKILL);
  ASSERT_TRUE(client.Wait(kPatience));
  EXPECT_TRUE(WaitUntil(Promised(seconds(1)), [this] { return Look().listed_sessions == 1; }));
  KillStranger(child, "sleep");
}

TEST_P(DeathTest, AForkedChildsEndEndsNothingOfItsParents) {
  StartThis();
  Process client = StartHolder();
  const pid_t child = PidIn(client.Ask("fork"));
  kill(child, SIGKILL);
  ASSERT_TRUE(WaitUntil(kPatience, [child] {
    const std::string stat = ReadFile("/proc/" + std::to_string(child) + "/stat");
    return stat.empty() || stat.find(") Z ") != std::string::npos;
  }));
  EXPECT_EQ(client.Ask("session"), "ok");
  EXPECT_EQ(Look().regions, 100u);
  EXPECT_EQ(client.Ask("deregister"), "ok");
}

class SlowDeathTest : public DaemonTest {};

TEST_F(SlowDeathTest, S19SigkillWhileTheDevicePins) {
  Start({.fabric = "verbs", .devices = "devices=fake0;fake0.reg_delay_ms=20"});
  Process client({.argv = {"tests/e2e/test_client", dir()}});
  for (const char* step : {"connect", "hello", "pass", "reg"}) ASSERT_EQ(client.Ask(step), "ok");
  // 64 regions of 20 ms each: it is in the middle of them.
  ASSERT_TRUE(WaitUntil(kPatience,
                        [this] { return Look().on_devices.find("mrs 0 ") == std::string::npos; }));
  client.Kill(SIGKILL);
  ASSERT_TRUE(client.Wait(kPatience));
  // Nothing more is pinned for it; what is under way (at most 64 regions) comes to its end first.
  ExpectNothingHeld(Promised(seconds(1)) + 64 * milliseconds(20));
}

TEST_F(SlowDeathTest, ASessionThatEndsWhileAnotherHoldsTheRegistrarIsGoneWithinASecond) {
  Start({.fabric = "verbs",
         .devices = "devices=fake0,slow0;slow0.reg_delay_ms=3000",
         .set = "registrar_threads=4"});
  RawClient hog(dir());
  const Memory memory(kPage);
  auto slow = RequestFor(hog.Pass(memory), memory);
  slow.add_devices("slow0");
  std::vector<std::future<bool>> calls;
  for (int i = 0; i < 6; ++i) {
    calls.push_back(std::async(std::launch::async, [&] { return hog.Register(slow).ok(); }));
  }
  ASSERT_TRUE(WaitUntil(kPatience, [this] { return Look().regions >= 2; }));
  const Holdings before = Look();
  {
    RawClient client(dir());
    client.RegisterAll(memory);
  }
  const bool gone = WaitUntil(Promised(seconds(1)),
                              [&] { return Look().listed_sessions == before.listed_sessions; });
  EXPECT_TRUE(gone) << Look();
  for (auto& call : calls) EXPECT_TRUE(call.get());
}

}  // namespace
}  // namespace mrd::e2e
