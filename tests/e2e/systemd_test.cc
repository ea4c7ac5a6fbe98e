// The daemon as a service manager starts it: sockets passed in, and told how the daemon is.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/e2e/process.h"
#include "tests/e2e/raw_client.h"
#include "tests/e2e/service_manager.h"
#include "tests/host/notify_receiver.h"
#include "tests/host/temporary_dir.h"

namespace mrd::e2e {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class SystemdTest : public testing::Test {
 protected:
  SystemdTest() { receiver_.emplace(dir_ / "notify"); }

  // With all of sockets_, as sd_listen_fds(3) has it.
  Process Launch(std::vector<std::pair<std::string, std::string>> environment = {}) {
    ProcessOptions options = Activated(
        sockets_, {"tests/e2e/test_daemon",
                   // Nothing is made there.
                   "--socket-dir=" + (dir_ / "nowhere"), "--config=" + (dir_ / "policy")});
    environment.emplace_back("NOTIFY_SOCKET", dir_ / "notify");
    if (environment[0].first != "MRD_FAKE_VERBS") {
      environment.emplace_back("MRD_FAKE_VERBS", "devices=fake0");
    }
    options.environment.insert(options.environment.end(), environment.begin(), environment.end());
    options.stderr_path = dir_ / "log";
    std::ofstream(dir_ / "policy") << "";
    return Process(options);
  }
  void Start(std::vector<std::pair<std::string, std::string>> environment = {}) {
    daemon_.emplace(Launch(std::move(environment)));
    const std::string ready = Next();
    ASSERT_THAT(ready, StartsWith("READY=1\n")) << Log();
    EXPECT_THAT(ready, HasSubstr("STATUS=0 sessions, 0 regions, 0 B"));
  }
  // The next thing that the manager is told.
  std::string Next(milliseconds within = kPatience) {
    return receiver_->Next(within).value_or("(nothing)");
  }
  // The same, but for the status.
  std::string NextEvent() {
    for (;;) {
      const std::string next = Next();
      if (next.rfind("STATUS=", 0) != 0) return next;
    }
  }
  void ExpectEnd() {
    daemon_->Kill(SIGTERM);
    EXPECT_EQ(daemon_->ExitStatus(), 0) << Log();
  }
  std::string Log() const { return ReadFile(dir_ / "log"); }
  bool Logs(const std::string& text) {
    return WaitUntil(kPatience, [&] { return Log().find(text) != std::string::npos; });
  }

  host::TemporaryDir dir_;
  const std::string run_ = dir_ / "mrd";
  std::optional<host::NotifyReceiver> receiver_;
  NamedFds sockets_ = MakeSockets(run_);
  std::optional<Process> daemon_;
};

TEST_F(SystemdTest, ServesTheSocketsThatItIsPassedAndLeavesThemWhenItEnds) {
  Start();
  EXPECT_THAT(Log(), HasSubstr("the service manager's sockets in " + run_));
  {
    RawClient client(run_);
    EXPECT_TRUE(client.GetStatus().ok());
    RawClient admin(run_, {.admin = true});
    EXPECT_TRUE(admin.ListSessions().ok());
  }
  ExpectEnd();
  for (const std::string& path : {run_ + "/mrd.sock", run_ + "/attach.sock"}) {
    EXPECT_TRUE(std::filesystem::is_socket(path)) << path;
  }
  EXPECT_TRUE(std::filesystem::is_socket(run_ + "-admin/attach.sock"));
  EXPECT_FALSE(std::filesystem::exists(run_ + "/lock"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "nowhere"));
}

TEST_F(SystemdTest, WhatARunWithAStoreLeftThereIsTakenOutOfIt) {
  sockets_.emplace_back("f1", OutOfTheWay(UniqueFd(eventfd(0, EFD_CLOEXEC))));
  daemon_.emplace(Launch());
  EXPECT_EQ(Next(), "FDSTOREREMOVE=1\nFDNAME=f1") << Log();
  EXPECT_THAT(Next(), StartsWith("READY=1\n")) << Log();
  ExpectEnd();
}

TEST_F(SystemdTest, WhoConnectsBetweenTwoRunsIsServedByTheNext) {
  Start();
  daemon_->Kill(SIGKILL);
  ASSERT_TRUE(daemon_->Wait(kPatience));
  auto client = std::async(std::launch::async, [this] { return RawClient(run_).GetStatus().ok(); });
  EXPECT_EQ(client.wait_for(milliseconds(300)), std::future_status::timeout);
  Start();
  EXPECT_TRUE(client.get());
  ExpectEnd();
}

TEST_F(SystemdTest, TheStatusSaysWhatItHolds) {
  Start();
  RawClient client(run_);
  const Memory memory(16384);
  client.RegisterAll(memory);
  std::string last;
  const bool told = WaitUntil(kPatience, [&] {
    last = Next();
    return last == "STATUS=1 session, 1 region, 16.0 KiB";
  });
  EXPECT_TRUE(told) << last;
  // What does not change is not told again.
  EXPECT_EQ(Next(milliseconds(2500)), "(nothing)");
  client.HangUp();
  EXPECT_TRUE(WaitUntil(kPatience, [&] { return Next() == "STATUS=0 sessions, 0 regions, 0 B"; }));
  ExpectEnd();
}

TEST_F(SystemdTest, AReloadIsToldFromItsBeginningToItsEnd) {
  Start();
  daemon_->Kill(SIGHUP);
  EXPECT_THAT(Next(), StartsWith("RELOADING=1\nMONOTONIC_USEC="));
  EXPECT_EQ(Next(), "READY=1");
  // One that is refused too; and by an admin's call.
  std::ofstream(dir_ / "policy") << "no policy";
  daemon_->Kill(SIGHUP);
  EXPECT_THAT(Next(), StartsWith("RELOADING=1\n"));
  EXPECT_EQ(Next(), "READY=1");
  EXPECT_TRUE(Logs("the policy is not taken"));
  std::ofstream(dir_ / "policy") << "";
  RawClient admin(run_, {.admin = true});
  EXPECT_TRUE(admin.ReloadPolicy().ok());
  EXPECT_THAT(NextEvent(), StartsWith("RELOADING=1\n"));
  EXPECT_EQ(NextEvent(), "READY=1");
  admin.HangUp();
  ExpectEnd();
}

TEST_F(SystemdTest, AnEndIsToldWithHowLongItMayTake) {
  Start({{"MRD_TEST_SET", "ending_ms=7000"}});
  ExpectEnd();
  EXPECT_EQ(Next(), "STOPPING=1\nEXTEND_TIMEOUT_USEC=12000000");
}

TEST_F(SystemdTest, TheWatchdogIsFedWhileItWorks) {
  Start({{"WATCHDOG_USEC", "2000000"}});
  const auto began = Clock::now();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Next(), "WATCHDOG=1");
  EXPECT_GE(Clock::now() - began, milliseconds(1000)) << "not more often than is needed";
  daemon_->Kill(SIGSTOP);
  while (receiver_->Waiting()) {
  }
  EXPECT_EQ(Next(milliseconds(3000)), "(nothing)");
  daemon_->Kill(SIGCONT);
  EXPECT_EQ(Next(), "WATCHDOG=1");
  ExpectEnd();
}

TEST_F(SystemdTest, AManagerThatIsGoneIsALineAndItServesOn) {
  Start({{"WATCHDOG_USEC", "400000"}});
  receiver_.reset();
  EXPECT_TRUE(Logs("the service manager cannot be told how mrd is"));
  std::filesystem::remove(dir_ / "notify");
  RawClient client(run_);
  daemon_->Kill(SIGHUP);
  EXPECT_TRUE(client.GetStatus().ok());
  client.HangUp();
  ExpectEnd();
}

TEST_F(SystemdTest, AManagerThatWasNeverThereIsALineToo) {
  receiver_.reset();
  std::filesystem::remove(dir_ / "notify");
  daemon_.emplace(Launch());
  EXPECT_TRUE(Logs("No such file or directory; mrd runs on"));
  EXPECT_TRUE(RawClient(run_).GetStatus().ok());
  ExpectEnd();
}

TEST_F(SystemdTest, SomeSocketsWithoutTheOthersAreNoStart) {
  sockets_.erase(sockets_.begin() + 1);
  daemon_.emplace(Launch());
  EXPECT_EQ(daemon_->ExitStatus(), 1);
  EXPECT_THAT(Log(), HasSubstr("start mrd-attach.socket"));
}

TEST_F(SystemdTest, ADirectoryThatOthersWriteToIsNoStart) {
  ASSERT_EQ(chmod(run_.c_str(), 0777), 0);
  daemon_.emplace(Launch());
  EXPECT_EQ(daemon_->ExitStatus(), 1);
  EXPECT_THAT(Log(), HasSubstr("will not use " + run_));
}

TEST_F(SystemdTest, WhatItDoesNotKnowIsClosedAndSaid) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]);
  sockets_.emplace_back("junk", OutOfTheWay(UniqueFd(ends[1])));
  daemon_.emplace(Launch());
  EXPECT_EQ(Next(), "FDSTOREREMOVE=1\nFDNAME=junk") << Log();
  EXPECT_THAT(Next(), StartsWith("READY=1\n")) << Log();
  EXPECT_THAT(Log(), HasSubstr("a descriptor \"junk\" that mrd does not know"));
  sockets_.pop_back();
  char byte;
  EXPECT_EQ(read(read_end.get(), &byte, 1), 0) << "it is open still";
  ExpectEnd();
}

TEST_F(SystemdTest, WithoutADeviceItWaitsForOne) {
  Start({{"MRD_FAKE_VERBS", ""}});
  EXPECT_THAT(Log(), HasSubstr("this host has no RDMA device"));
  RawClient client(run_);
  const auto devices = client.ListDevices();
  EXPECT_TRUE(devices.ok());
  EXPECT_EQ(devices.response.devices_size(), 0);
  client.HangUp();
  ExpectEnd();
}

TEST_F(SystemdTest, S24ASecondDaemonLeavesTheManagersSocketsAlone) {
  Start();
  Process second({.argv = {"tests/e2e/test_daemon", "--socket-dir=" + run_, "--fabric=soft",
                           "--config=" + (dir_ / "policy")},
                  .stderr_path = dir_ / "second"});
  EXPECT_EQ(second.ExitStatus(), 1);
  EXPECT_THAT(ReadFile(dir_ / "second"),
              AllOf(HasSubstr("another mrd (pid " + std::to_string(daemon_->pid()) + ")"),
                    HasSubstr("systemctl stop")));
  RawClient client(run_);
  EXPECT_TRUE(client.GetStatus().ok());
  RawClient admin(run_, {.admin = true});
  EXPECT_TRUE(admin.ListSessions().ok());
  client.HangUp();
  admin.HangUp();
  ExpectEnd();
}

}  // namespace
}  // namespace mrd::e2e
