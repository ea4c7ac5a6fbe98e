#include "daemon/host/service_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>

#include "tests/host/captured_log.h"
#include "tests/host/notify_receiver.h"
#include "tests/host/temporary_dir.h"

namespace mrd::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Optional;
using testing::StartsWith;
using Clock = std::chrono::steady_clock;

class ServiceManagerTest : public testing::Test {
 protected:
  ~ServiceManagerTest() override {
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) unsetenv(name);
  }

  void Start(const std::string& address) {
    receiver_ = std::make_unique<NotifyReceiver>(address);
    setenv("NOTIFY_SOCKET", address.c_str(), 1);
    manager_ = std::make_unique<ServiceManager>();
  }
  void Start() { Start(dir_ / "notify"); }

  TemporaryDir dir_;
  CapturedLog log_;
  std::unique_ptr<NotifyReceiver> receiver_;
  std::unique_ptr<ServiceManager> manager_;
};

TEST_F(ServiceManagerTest, IsToldThatTheDaemonIsReady) {
  Start();
  manager_->Ready("0 sessions");
  EXPECT_THAT(receiver_->Waiting(), Optional(std::string("READY=1\nSTATUS=0 sessions")));
}

TEST_F(ServiceManagerTest, MayListenAtAnAbstractName) {
  Start("@mrd-test-" + std::to_string(getpid()));
  manager_->Ready("0 sessions");
  EXPECT_THAT(receiver_->Waiting(), Optional(StartsWith("READY=1")));
}

TEST_F(ServiceManagerTest, IsToldTheStatusOnlyWhereItIsAnother) {
  Start();
  manager_->Ready("0 sessions");
  EXPECT_TRUE(receiver_->Waiting());
  manager_->SetStatus("0 sessions");
  EXPECT_FALSE(receiver_->Waiting());
  manager_->SetStatus("1 session");
  EXPECT_THAT(receiver_->Waiting(), Optional(std::string("STATUS=1 session")));
  manager_->SetStatus("1 session");
  EXPECT_FALSE(receiver_->Waiting());
}

TEST_F(ServiceManagerTest, IsToldOfTheEndAndHowLongItMayTake) {
  Start();
  manager_->Stopping(milliseconds(30000));
  EXPECT_THAT(receiver_->Waiting(),
              Optional(std::string("STOPPING=1\nEXTEND_TIMEOUT_USEC=35000000")));
}

TEST_F(ServiceManagerTest, IsToldOfAReload) {
  Start();
  {
    const ServiceManager::Reload reload(*manager_);
    EXPECT_THAT(receiver_->Waiting(),
                Optional(MatchesRegex("RELOADING=1\nMONOTONIC_USEC=[0-9]{4,}")));
    EXPECT_FALSE(receiver_->Waiting());
  }
  EXPECT_THAT(receiver_->Waiting(), Optional(std::string("READY=1")));
}

TEST_F(ServiceManagerTest, TakesReloadsAtOnceForOne) {
  Start();
  auto first = std::make_unique<ServiceManager::Reload>(*manager_);
  EXPECT_TRUE(receiver_->Waiting());
  auto second = std::make_unique<ServiceManager::Reload>(*manager_);
  first.reset();
  EXPECT_FALSE(receiver_->Waiting());
  second.reset();
  EXPECT_THAT(receiver_->Waiting(), Optional(std::string("READY=1")));
}

TEST_F(ServiceManagerTest, SaysHowOftenItWantsToHearFromTheDaemon) {
  setenv("WATCHDOG_USEC", "30000000", 1);
  setenv("WATCHDOG_PID", std::to_string(getpid()).c_str(), 1);
  Start();
  EXPECT_EQ(manager_->watchdog_timeout(), seconds(30));
  manager_->FeedWatchdog();
  EXPECT_THAT(receiver_->Waiting(), Optional(std::string("WATCHDOG=1")));
}

TEST_F(ServiceManagerTest, MayHaveAnotherProcessInMind) {
  setenv("WATCHDOG_USEC", "30000000", 1);
  setenv("WATCHDOG_PID", "1", 1);
  Start();
  EXPECT_EQ(manager_->watchdog_timeout().count(), 0);
}

TEST_F(ServiceManagerTest, ThatIsNotThereIsNotMissed) {
  ServiceManager nobody;
  const auto began = Clock::now();
  nobody.Ready("0 sessions");
  nobody.SetStatus("1 session");
  nobody.Stopping(milliseconds(1));
  nobody.FeedWatchdog();
  { const ServiceManager::Reload reload(nobody); }
  nobody.StartFailed();
  EXPECT_LT(Clock::now() - began, milliseconds(500));
  EXPECT_EQ(log_.Taken(), "");
}

TEST_F(ServiceManagerTest, ThatIsGoneIsALineInTheLogEachTimeItGoes) {
  Start();
  manager_->Ready("0 sessions");
  receiver_.reset();
  manager_->SetStatus("1 session");
  EXPECT_THAT(log_.Taken(), HasSubstr("notify): Connection refused; mrd runs on"));
  manager_->FeedWatchdog();
  manager_->SetStatus("1 session");
  EXPECT_EQ(log_.Taken(), "");
  // What it was not told it is told later.
  unlink((dir_ / "notify").c_str());
  receiver_ = std::make_unique<NotifyReceiver>(dir_ / "notify");
  manager_->SetStatus("1 session");
  EXPECT_THAT(receiver_->Waiting(), Optional(std::string("STATUS=1 session")));
  receiver_.reset();
  manager_->FeedWatchdog();
  EXPECT_THAT(log_.Taken(), HasSubstr("Connection refused"));
}

TEST_F(ServiceManagerTest, AtAnAddressThatIsNoneIsALineInTheLog) {
  for (const std::string& address : {std::string("vsock:2:1"), "/" + std::string(108, 'x')}) {
    setenv("NOTIFY_SOCKET", address.c_str(), 1);
    ServiceManager manager;
    manager.Ready("0 sessions");
    EXPECT_THAT(log_.Taken(), HasSubstr("Invalid argument"));
  }
}

TEST_F(ServiceManagerTest, ThatDoesNotReadDoesNotStopTheMainLoop) {
  Start();
  // The kernel queues net.unix.max_dgram_qlen of them.
  const auto began = Clock::now();
  for (int i = 0; i < 2000; ++i) manager_->FeedWatchdog();
  EXPECT_LT(Clock::now() - began, seconds(3));
  EXPECT_THAT(log_.Taken(), HasSubstr("Resource temporarily unavailable"));
}

TEST_F(ServiceManagerTest, AFailedStartIsNotRepeatedAtOnce) {
  Start();
  const auto began = Clock::now();
  manager_->StartFailed();
  EXPECT_GE(Clock::now() - began, milliseconds(900));
}

}  // namespace
}  // namespace mrd::host
