// The operator's policy, as clients feel it: limits by rule and account, what is allowed, reloads.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

class PolicyTest : public DaemonTest {
 protected:
  // Clients of other users may connect.
  void OpenToAll() {
    ASSERT_EQ(chmod((dir() + "/attach.sock").c_str(), 0666), 0);
    ASSERT_EQ(chmod((dir() + "/mrd.sock").c_str(), 0666), 0);
  }
  v1::Session SessionOf(pid_t pid) {
    const auto listed = admin().ListSessions().response;
    for (const auto& session : listed.sessions()) {
      if (session.pid() == pid) return session;
    }
    return {};
  }
};

template <typename Response>
void ExpectDeniedBy(const std::string& rule, const Answer<Response>& answer) {
  ExpectRefusal(answer, v1::POLICY_DENIED);
  EXPECT_NE(answer.text().find("rule \"" + rule + "\""), std::string::npos) << answer.text();
}

TEST_F(PolicyTest, ARuleLimitsTheBytesOfAUid) {
  Start({.policy = "rules { name: \"small\" uid: 0 limits { pinned_bytes: 8192 } }"});
  RawClient client(dir());
  const Memory memory(4 * kPage);
  const uint64_t id = client.Pass(memory);
  const auto refused = client.Register(RequestFor(id, memory));
  ExpectRefusal(refused, v1::QUOTA_BYTES);
  ExpectLimit(refused, "pinned bytes of uid 0", 8192, 0);
  EXPECT_NE(refused.text().find("rule \"small\""), std::string::npos) << refused.text();
  EXPECT_TRUE(client.Register(RequestFor(id, memory.addr(), 2 * kPage)).ok());
  const auto status = client.GetStatus().response;
  EXPECT_EQ(status.policy().rule(), "small");
  EXPECT_EQ(status.policy().account(), "uid 0");
  EXPECT_EQ(status.policy().limits().pinned_bytes(), 8192u);
  EXPECT_EQ(status.session().rule(), "small");
}

TEST_F(PolicyTest, AnotherUidHasTheDefaults) {
  Start({.policy = "rules { name: \"small\" uid: 0 limits { pinned_bytes: 0 } }"});
  OpenToAll();
  Process client({.argv = {"tests/e2e/test_client", dir()}, .uid = 65533});
  ASSERT_EQ(client.Ask("attach").substr(0, 2), "ok");
  ASSERT_EQ(client.Ask("buffer 4096"), "ok");
  EXPECT_EQ(client.Ask("register 1").substr(0, 2), "ok");
  EXPECT_EQ(SessionOf(client.pid()).rule(), "");
}

// A cgroup of the unified hierarchy (wherever it is mounted) with this test's child in it; where
// the machine lets none be made, the cgroup that the child is in.
class Cgroup {
 public:
  Cgroup() {
    std::ifstream mounts("/proc/self/mounts");
    std::string device, point, type, rest;
    while (mounts >> device >> point >> type && std::getline(mounts, rest)) {
      const std::string made = point + "/mrd-test-" + std::to_string(getpid());
      if (type != "cgroup2" || mkdir(made.c_str(), 0755) != 0) continue;
      if (mkdir((made + "/below").c_str(), 0755) == 0) {
        made_ = made;
        return;
      }
      rmdir(made.c_str());
    }
  }
  ~Cgroup() {
    if (made_.empty()) return;
    WaitUntil(kPatience, [this] { return rmdir((made_ + "/below").c_str()) == 0; });
    rmdir(made_.c_str());
  }
  bool made() const { return !made_.empty(); }
  void Enter(pid_t pid, const char* below) const {
    if (!made()) return;
    std::ofstream procs(made_ + below + "/cgroup.procs");
    procs << pid << std::flush;
    Require(procs.good(), "enter a cgroup");
  }

 private:
  std::string made_;
};

TEST_F(PolicyTest, ACgroupIsAnAccountWithAllThatIsBelowIt) {
  const Cgroup cgroup;
  Start();
  OpenToAll();
  Process probe({.argv = {"tests/e2e/test_client", dir()}});
  cgroup.Enter(probe.pid(), "");
  ASSERT_EQ(probe.Ask("attach").substr(0, 2), "ok");
  const std::string path = SessionOf(probe.pid()).cgroup();
  ASSERT_NE(ReadFile("/proc/" + std::to_string(probe.pid()) + "/cgroup").find("0::" + path + "\n"),
            std::string::npos)
      << path;
  daemon().Reload("rules { name: \"pod\" cgroup: \"" + path + "\" limits { regions: 2 } }");
  Process other({.argv = {"tests/e2e/test_client", dir()}, .uid = 65533});
  cgroup.Enter(other.pid(), "/below");
  ASSERT_EQ(other.Ask("attach").substr(0, 2), "ok");
  EXPECT_EQ(SessionOf(other.pid()).rule(), "pod");
  EXPECT_EQ(SessionOf(probe.pid()).rule(), "pod") << "a session that stood already";
  if (cgroup.made()) {
    EXPECT_EQ(SessionOf(other.pid()).cgroup(), path + "/below");
    RawClient outside(dir());
    EXPECT_EQ(outside.GetStatus().response.policy().rule(), "") << "in no such cgroup";
  }
  for (Process* client : {&probe, &other}) {
    ASSERT_EQ(client->Ask("buffer 4096"), "ok");
    ASSERT_EQ(client->Ask("register 1").substr(0, 2), "ok");
  }
  // Two users, one account.
  const std::string refused = other.Ask("register 1");
  EXPECT_NE(refused.find("regions of cgroup " + path), std::string::npos) << refused;
}

TEST_F(PolicyTest, AReloadHoldsForLiveSessionsAndEndsNothing) {
  Start();
  RawClient client(dir());
  const Memory memory(kPage);
  const uint64_t id = client.Pass(memory);
  std::vector<uint64_t> leases;
  for (int i = 0; i < 4; ++i) {
    const auto answer = client.Register(RequestFor(id, memory));
    ASSERT_TRUE(answer.ok()) << answer.text();
    leases.push_back(answer.response.leases(0).lease_id());
  }
  daemon().Reload("rules { name: \"tight\" limits { regions: 2 } }");
  EXPECT_NE(daemon().Log().find("added tight"), std::string::npos) << "what changed is logged";
  EXPECT_EQ(client.ListLeases().response.leases_size(), 4) << "what stands stays";
  const auto refused = client.Register(RequestFor(id, memory));
  ExpectRefusal(refused, v1::QUOTA_REGIONS);
  ExpectLimit(refused, "regions of uid 0", 2, 4);
  EXPECT_EQ(client.GetStatus().response.policy().rule(), "tight");
  ASSERT_TRUE(client.Deregister({leases[0], leases[1], leases[2]}).ok());
  EXPECT_TRUE(client.Register(RequestFor(id, memory)).ok()) << "below the limit again";
  EXPECT_FALSE(client.Register(RequestFor(id, memory)).ok());
  daemon().Reload("");
  EXPECT_TRUE(client.Register(RequestFor(id, memory)).ok());
}

TEST_F(PolicyTest, ABadFileLeavesTheOldOneInForceAndSaysWhere) {
  Start({.policy = "rules { name: \"old\" limits { regions: 1 } }"});
  RawClient client(dir());
  for (const char* bad : {"rules { name: \"new\" }\nrules { nmae: \"x\" }",
                          "rules { name: \"new\" }\nrules { name: \"new\" uid: 1 }"}) {
    daemon().Reload(bad, /*good=*/false);
    EXPECT_EQ(client.GetStatus().response.policy().rule(), "old");
  }
  const std::string log = daemon().Log();
  EXPECT_NE(log.find(daemon().policy_file() + ":2:9: "), std::string::npos) << log;
  EXPECT_NE(log.find("has the name of the one in line 1"), std::string::npos) << log;
  ASSERT_EQ(unlink(daemon().policy_file().c_str()), 0);
  daemon().process().Kill(SIGHUP);
  EXPECT_TRUE(WaitUntil(kPatience, [this] {
    return daemon().Log().find("cannot open the policy") != std::string::npos;
  })) << "one that was named may not be missing";
  EXPECT_EQ(client.GetStatus().response.policy().rule(), "old");
  const auto counted = [this](const std::string& line) {
    return admin().GetMetrics().response.text().find(line) != std::string::npos;
  };
  EXPECT_TRUE(WaitUntil(kPatience,
                        [&] { return counted("mrd_policy_reads_total{result=\"refused\"} 3\n"); }));
  EXPECT_TRUE(counted("mrd_policy_reads_total{result=\"in_force\"} 1\n"));
}

TEST_F(PolicyTest, ABadOrMissingNamedFileIsNoStart) {
  Start();
  const std::string bad = daemon().base() + "/bad";
  std::ofstream(bad) << "rules {\n uid: -1 }";
  const std::string log = daemon().base() + "/other-log";
  const std::vector<std::pair<std::string, std::string>> files = {
      {bad, bad + ":2:7: "},
      {"/nonexistent", "cannot open the policy /nonexistent"},
      {daemon().base(), "is not a regular file"}};
  for (const auto& [file, says] : files) {
    remove(log.c_str());
    const std::string other = daemon().base() + "/other";
    Process daemon({.argv = {"tests/e2e/test_daemon", "--fabric=soft", "--socket-dir=" + other,
                             "--config=" + file},
                    .stderr_path = log});
    EXPECT_EQ(daemon.ExitStatus(), 1);
    EXPECT_NE(ReadFile(log).find(says), std::string::npos) << ReadFile(log);
    EXPECT_NE(access(other.c_str(), F_OK), 0) << "it leaves no directory";
  }
}

TEST_F(PolicyTest, DevicesAccessAndUnsealedBuffersAreAsTheRuleSays) {
  Start(
      {.fabric = "verbs",
       .devices = "devices=fake0,fake1",
       .policy = "rules { name: \"strict\" devices: \"*1\" access: [LOCAL_WRITE, REMOTE_READ] }"});
  RawClient client(dir());
  const Memory memory(kPage);
  const uint64_t id = client.Pass(memory);
  auto request = RequestFor(id, memory);
  ExpectDeniedBy("strict", client.Register(request));  // reg_write.
  request.mutable_access()->set_preset(v1::Access::REG_READ);
  const auto taken = client.Register(request);
  ASSERT_TRUE(taken.ok()) << taken.text();
  EXPECT_EQ(taken.response.leases(0).keys(0).device(), "fake1") << "the first that is allowed";
  request.add_devices("fake0");
  ExpectDeniedBy("strict", client.Register(request));
  request.clear_devices();
  request.set_all_devices(true);
  const auto all = client.Register(request);
  ASSERT_TRUE(all.ok()) << all.text();
  EXPECT_EQ(all.response.leases(0).keys_size(), 1) << "all that are allowed";

  const Memory loose(kPage, {.sealed = false});
  auto unsealed = RequestFor(client.Pass(loose), loose);
  unsealed.mutable_access()->set_preset(v1::Access::REG_READ);
  ExpectRefusal(client.Register(unsealed), v1::NOT_SEALED);
  daemon().Reload("rules { name: \"lenient\" unsealed: true }");
  EXPECT_TRUE(client.Register(unsealed).ok());
  request.clear_all_devices();
  request.add_devices("fake0");
  EXPECT_TRUE(client.Register(request).ok());
  daemon().Reload("rules { name: \"none\" devices: \"mlx*\" }");
  // A domain that stands already does not open the device.
  ExpectDeniedBy("none", client.Register(request));
  request.clear_devices();
  ExpectDeniedBy("none", client.Register(request));
}

TEST_F(PolicyTest, EndpointsLieOnAllowedDevicesOnly) {
  Start({.policy = "rules { name: \"none\" devices: \"mlx*\" }"});
  RawClient client(dir());
  const Holdings before = Look();
  ExpectDeniedBy("none", client.Listen(""));
  ExpectHoldings(before);
  daemon().Reload("");
  EXPECT_TRUE(client.Listen("").ok());
}

TEST_F(PolicyTest, WhoIsDeniedDoesNotAttachAndAnAdminDoes) {
  Start();
  RawClient before(dir());
  daemon().Reload("rules { name: \"closed\" deny: true }");
  const AttachSocket socket(dir() + "/attach.sock");
  ASSERT_TRUE(socket.SendHello());
  EXPECT_EQ(socket.ReceiveRefusal(), v1::POLICY_DENIED);
  RawClient operator_(dir(), {.admin = true});
  EXPECT_TRUE(operator_.ListSessions().ok());
  // One that stood already gets nothing more.
  const Memory memory(kPage);
  EXPECT_EQ(before.Register(RequestFor(before.Pass(memory), memory)).reason(), v1::POLICY_DENIED);
  ExpectRefusal(before.Listen(""), v1::POLICY_DENIED);
}

TEST_F(PolicyTest, NobodyIsNotGrantedWhatIsMeantForAllAndIsDeniedWithAll) {
  Start(
      {.policy = "rules { name: \"all\" uid_range { first: 0 last: 4294967295 } unsealed: true }"});
  OpenToAll();
  {
    Process nobody({.argv = {"tests/e2e/test_client", dir()}, .uid = 65534});
    ASSERT_EQ(nobody.Ask("attach").substr(0, 2), "ok");
    EXPECT_EQ(SessionOf(nobody.pid()).rule(), "");
    daemon().Reload("rules { name: \"nobody\" uid: 65534 limits { sessions: 1 } }");
    EXPECT_EQ(SessionOf(nobody.pid()).rule(), "nobody");
  }
  daemon().Reload("rules { name: \"closed\" deny: true }");
  Process nobody({.argv = {"tests/e2e/test_client", dir()}, .uid = 65534});
  EXPECT_NE(nobody.Ask("attach").find("closed"), std::string::npos);
}

TEST_F(PolicyTest, AThousandConnectionsOfOneUidAreBoundedAndOthersServed) {
  Start({.policy = "rules { name: \"root\" uid: 0 limits { connections: 20 sessions: 30 } }"});
  OpenToAll();
  const size_t before = daemon().resources().fds;
  std::vector<UniqueFd> rpc;
  for (int i = 0; i < 1000; ++i) rpc.push_back(Connect(dir() + "/mrd.sock", SOCK_STREAM));
  size_t standing = rpc.size();
  EXPECT_TRUE(WaitUntil(kPatience, [&] {
    standing = 0;
    for (const UniqueFd& each : rpc) {
      char byte;
      const ssize_t got = recv(each.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
      standing += got > 0 || (got < 0 && errno == EAGAIN);
    }
    return standing <= 20;
  })) << standing;
  size_t attached = 0;
  std::vector<AttachSocket> sessions;
  for (int i = 0; i < 100; ++i) {
    sessions.emplace_back(dir() + "/attach.sock");
    ASSERT_TRUE(sessions.back().SendHello());
    const auto packet = sessions.back().Receive();
    attached += packet && packet->has_welcome();
  }
  EXPECT_EQ(attached, 30u) << "admins count by themselves";
  EXPECT_LT(daemon().resources().fds, before + 4 * 20 + 4 * 30 + 50);
  Process other({.argv = {"tests/e2e/test_client", dir()}, .uid = 65533});
  ASSERT_EQ(other.Ask("attach").substr(0, 2), "ok");
  ASSERT_EQ(other.Ask("buffer 4096"), "ok");
  EXPECT_EQ(other.Ask("register 1").substr(0, 2), "ok");
}

TEST_F(PolicyTest, ALimitOfASessionsBuffersAndCallsIsTheRules) {
  Start({.policy = "rules { name: \"few\" limits { buffers_per_session: 1 buffers: 3 } }"});
  RawClient client(dir());
  EXPECT_EQ(client.welcome().limits().max_buffers(), 1u);
  const Memory memory(kPage);
  client.Pass(memory);
  const auto refused = client.Register(RequestFor(client.Pass(memory), memory));
  ExpectRefusal(refused, v1::QUOTA_BUFFERS);
  ExpectLimit(refused, "buffers of the session", 1, 1);
}

TEST_F(PolicyTest, TheGreatestLimitOfASessionsBuffersIsNone) {
  Start({.policy = "rules { name: \"all\" limits { buffers_per_session: 18446744073709551615 } }"});
  RawClient client(dir());
  EXPECT_EQ(client.welcome().limits().max_buffers(), UINT32_MAX);
  const Memory memory(kPage);
  for (int i = 0; i < 300; ++i) client.Pass(memory);
  EXPECT_TRUE(client.Register(RequestFor(client.Pass(memory), memory)).ok());
}

}  // namespace
}  // namespace mrd::e2e
