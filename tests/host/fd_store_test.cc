#include "daemon/host/fd_store.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "daemon/host/notify_socket.h"
#include "tests/host/captured_log.h"
#include "tests/host/notify_receiver.h"
#include "tests/host/temporary_dir.h"

namespace mrd::host {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Optional;

class FdStoreTest : public testing::Test {
 protected:
  FdStoreTest() : systemd_(std::make_unique<NotifyReceiver>(dir_ / "notify")) {
    setenv("NOTIFY_SOCKET", (dir_ / "notify").c_str(), 1);
  }
  ~FdStoreTest() override { unsetenv("NOTIFY_SOCKET"); }

  TemporaryDir dir_;
  CapturedLog log_;
  std::unique_ptr<NotifyReceiver> systemd_;
};

TEST_F(FdStoreTest, TellsWhatGoesInAndWhatComesOut) {
  FdStore store(2, {"ledger"});
  EXPECT_TRUE(store.Add("f1", STDIN_FILENO).ok());
  EXPECT_THAT(systemd_->Waiting(), Optional(std::string("FDSTORE=1\nFDNAME=f1\nFDPOLL=0")));
  EXPECT_EQ(store.used(), 2u);
  EXPECT_TRUE(absl::IsResourceExhausted(store.Add("f2", STDIN_FILENO)));
  store.Remove("f2");
  EXPECT_FALSE(systemd_->Waiting());
  store.Remove("ledger");
  EXPECT_THAT(systemd_->Waiting(), Optional(std::string("FDSTOREREMOVE=1\nFDNAME=ledger")));
  EXPECT_EQ(store.used(), 1u);
}

TEST_F(FdStoreTest, TakesNoNameThatIsLongerThanWasTried) {
  FdStore store(2, {});
  EXPECT_TRUE(store.Add("f123456789ab", STDIN_FILENO).ok());
  EXPECT_FALSE(store.Add("f123456789abc", STDIN_FILENO).ok());
  EXPECT_EQ(store.used(), 1u);
}

TEST_F(FdStoreTest, WhatSystemdWasNotToldHasItsPlaceStill) {
  FdStore store(2, {"f1"});
  systemd_.reset();
  store.Remove("f1");
  EXPECT_EQ(store.used(), 1u);
  EXPECT_THAT(log_.Taken(), HasSubstr("f1 stays in systemd's store: Connection refused"));
  EXPECT_TRUE(absl::IsUnavailable(store.Add("f2", STDIN_FILENO)));
  EXPECT_EQ(store.used(), 1u);
}

// Else systemd, whose store is full, drops what another thread puts there.
TEST_F(FdStoreTest, APlaceIsFreeOnlyOnceSystemdKnows) {
  FdStore store(1, {"f1"});
  NotifySocket others;
  while (others.Send("STATUS=full", NotifySocket::kNone)) {
  }
  std::atomic<bool> removed = false;
  std::thread remover([&] {
    store.Remove("f1");
    removed = true;
  });
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_FALSE(removed) << "there is no room for the message";
  EXPECT_TRUE(absl::IsResourceExhausted(store.Add("f2", STDIN_FILENO)));
  std::optional<std::string> next;
  do {
    next = systemd_->Next();
  } while (next == "STATUS=full");
  EXPECT_EQ(next, "FDSTOREREMOVE=1\nFDNAME=f1");
  remover.join();
  EXPECT_EQ(store.used(), 0u);
}

// Who registers memory waits for it.
TEST_F(FdStoreTest, DoesNotWaitForEverForASystemdThatDoesNotRead) {
  FdStore store(2, {"f1"});
  NotifySocket others;
  while (others.Send("STATUS=full", NotifySocket::kNone)) {
  }
  EXPECT_TRUE(absl::IsUnavailable(store.Add("f2", STDIN_FILENO)));
  store.Remove("f1");
  EXPECT_EQ(store.used(), 1u);
}

TEST_F(FdStoreTest, WhatGoesInIsTheDescriptor) {
  const UniqueFd kept(memfd_create("kept", MFD_CLOEXEC));
  FdStore store(2, {});
  ASSERT_TRUE(store.Add("f1", kept.get()).ok());
  const UniqueFd stored = systemd_->NextFd();
  struct stat ours, theirs;
  ASSERT_EQ(fstat(kept.get(), &ours), 0);
  ASSERT_EQ(fstat(stored.get(), &theirs), 0);
  EXPECT_EQ(theirs.st_ino, ours.st_ino);
}

}  // namespace
}  // namespace mrd::host
