// S18: descriptors of every wrong kind, ten thousand of them, and those of a file whose server does
// not answer.
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

class BadFdsTest : public EachFabricTest {};
MRD_ON_EACH_FABRIC(BadFdsTest);

TEST_P(BadFdsTest, S18TenThousandBadDescriptorsEachGetAReasonAndNoneIsKept) {
  StartThis();
  const Memory good(kPage);
  const std::string good_path = "/proc/self/fd/" + std::to_string(good.fd());
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  const UniqueFd pipe_in(pipes[0]);
  const UniqueFd pipe_out(pipes[1]);
  sigset_t none;
  sigemptyset(&none);
  struct Kind {
    const char* name;
    UniqueFd fd;
    v1::Reason reason;
  };
  std::vector<Kind> kinds;
  const auto add = [&](const char* name, int fd, v1::Reason reason) {
    ASSERT_GE(fd, 0) << name;
    kinds.push_back({name, UniqueFd(fd), reason});
  };
  add("pipe", dup(pipe_in.get()), v1::NOT_SHARED_MEMORY);
  add("directory", open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), v1::NOT_SHARED_MEMORY);
  add("read-only", open(good_path.c_str(), O_RDONLY | O_CLOEXEC), v1::BUFFER_READ_ONLY);
  add("too short", memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING), v1::OUT_OF_RANGE);
  add("O_PATH", open(good_path.c_str(), O_PATH | O_CLOEXEC), v1::NOT_SHARED_MEMORY);
  add("socket", socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), v1::NOT_SHARED_MEMORY);
  add("epoll", epoll_create1(EPOLL_CLOEXEC), v1::NOT_SHARED_MEMORY);
  add("eventfd", eventfd(0, EFD_CLOEXEC), v1::NOT_SHARED_MEMORY);
  add("timerfd", timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), v1::NOT_SHARED_MEMORY);
  add("signalfd", signalfd(-1, &none, SFD_CLOEXEC), v1::NOT_SHARED_MEMORY);
  add("device", open("/dev/null", O_RDWR | O_CLOEXEC), v1::NOT_SHARED_MEMORY);
  add("proc", open("/proc/self/maps", O_RDONLY | O_CLOEXEC), v1::NOT_SHARED_MEMORY);
  add("program", open("/proc/self/exe", O_RDONLY | O_CLOEXEC), v1::NOT_SHARED_MEMORY);

  RawClient client(dir());
  ASSERT_TRUE(client.GetStatus().ok());
  const Holdings before = Look();
  const int total = Scaled(10000);
  uint64_t id = 0;
  for (int sent = 0; sent < total;) {
    std::vector<uint64_t> ids;
    std::vector<int> fds;
    for (int i = 0; i < 64; ++i, ++sent) {
      ids.push_back(++id);
      fds.push_back(kinds[sent % kinds.size()].fd.get());
    }
    ASSERT_TRUE(client.attach().SendBuffers(ids, fds));
    for (size_t i = 0; i < ids.size(); ++i) {
      const Kind& kind = kinds[(sent - 64 + i) % kinds.size()];
      const auto answer = client.Register(RequestFor(ids[i], 0x10000000, kPage));
      ASSERT_EQ(answer.reason(), kind.reason) << kind.name << ": " << answer.text();
    }
    ASSERT_TRUE(client.Release(ids).ok());
  }
  ExpectHoldings(before);
}

TEST_P(BadFdsTest, S18BadDescriptorsThatNobodyNamesGoWithTheirSession) {
  StartThis();
  const UniqueFd epoll_fd(epoll_create1(EPOLL_CLOEXEC));
  for (int i = 0; i < 5; ++i) {
    RawClient client(dir());
    for (int k = 0; k < 1000; ++k) client.PassFd(epoll_fd.get());
    ASSERT_TRUE(client.ListLeases().ok());
    client.HangUp();
    ExpectNothingHeld();
  }
}

class MuteFileTest : public DaemonTest {
 protected:
  void SetUp() override {
    Start();
    const std::string mount_point = daemon().base() + "/fuse";
    server_ =
        std::make_unique<Process>(ProcessOptions{.argv = {"tests/e2e/mute_fuse", mount_point}});
    ASSERT_EQ(server_->Read(), "ready");
    const std::string path =
        "/proc/" + std::to_string(server_->pid()) + "/root" + mount_point + "/file";
    mute_.reset(open(path.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(mute_);
  }
  void TearDown() override {
    EndServer();
    DaemonTest::TearDown();
  }
  // All that waits for it goes on. Until then nobody who has the file open can end.
  void EndServer() {
    server_->Kill(SIGKILL);
    EXPECT_TRUE(server_->Wait(kPatience));
  }
  void ExpectServedAsEver() {
    const auto began = Clock::now();
    RawClient other(dir());
    const Memory memory(kPage);
    const v1::Lease lease = other.RegisterAll(memory);
    EXPECT_TRUE(other.Deregister({lease.lease_id()}).ok());
    EXPECT_TRUE(admin().GetStatus().ok());
    EXPECT_LT(Clock::now() - began, Promised(seconds(1)));
  }

  UniqueFd mute_;  // Outlives the server, which its close would wait for.
  std::unique_ptr<Process> server_;
};

TEST_F(MuteFileTest, S18AFileWhoseServerDoesNotAnswerIsRefusedAndHoldsUpNobody) {
  RawClient client(dir());
  const auto began = Clock::now();
  for (int i = 0; i < 20; ++i) {
    const uint64_t id = client.PassFd(mute_.get());
    ExpectRefusal(client.Register(RequestFor(id, 0x10000000, kPage)), v1::NOT_SHARED_MEMORY);
  }
  EXPECT_LT(Clock::now() - began, Promised(seconds(2)));
  ExpectServedAsEver();
  // The closes do hang: one thread is at it, the other descriptors wait.
  EXPECT_GT(daemon().resources().fds, baseline().fds + 10);
  client.HangUp();
  EXPECT_TRUE(WaitUntil(Promised(seconds(1)), [this] { return Look().listed_sessions == 1; }));
  ExpectServedAsEver();
  EndServer();
  ExpectNothingHeld();
}

TEST_F(MuteFileTest, S18AUserWhoSendsManyOfThemIsBoundedAndNobodyElse) {
  chmod((dir() + "/attach.sock").c_str(), 0666);
  Process client(
      {.argv = {"tests/e2e/test_client", dir()}, .inherited = {mute_.get()}, .uid = 65533});
  const std::string hung_up = client.Ask("flood " + std::to_string(mute_.get()) + " 100 64");
  EXPECT_EQ(hung_up, "ok 100 sessions ended");
  EXPECT_GT(daemon().resources().fds, baseline().fds + 500);
  EXPECT_LT(daemon().resources().fds, baseline().fds + 10000);
  ExpectServedAsEver();
  EndServer();
  client.Kill(SIGKILL);
  ExpectNothingHeld();
}

TEST_F(MuteFileTest, S18AUserWhoSendsThemOneAtATimeIsBoundedToo) {
  chmod((dir() + "/attach.sock").c_str(), 0666);
  Process client(
      {.argv = {"tests/e2e/test_client", dir()}, .inherited = {mute_.get()}, .uid = 65533});
  const std::string flood = "flood " + std::to_string(mute_.get()) + " 200 1";
  EXPECT_EQ(client.Ask(flood), "ok 200 sessions ended");
  const size_t fds = daemon().resources().fds;
  EXPECT_GT(fds, baseline().fds + 500);
  // Whoever has so many of them waiting is not let in any more, so that they do not pile up.
  EXPECT_EQ(client.Ask(flood), "ok 200 sessions ended");
  EXPECT_LT(daemon().resources().fds, fds + 50);
  ExpectServedAsEver();
  EndServer();
  client.Kill(SIGKILL);
  ExpectNothingHeld();
}

}  // namespace
}  // namespace mrd::e2e
