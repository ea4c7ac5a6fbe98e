#include "daemon/memory/disposer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "daemon/unique_fd.h"

namespace mrd::memory {
namespace {

TEST(Disposer, ClosesWhatItIsGiven) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  Disposer disposer;
  EXPECT_TRUE(disposer.Close(1000, UniqueFd(ends[1])));
  pollfd poll_fd{reader.get(), 0, 0};
  ASSERT_EQ(poll(&poll_fd, 1, 5000), 1);
  EXPECT_NE(poll_fd.revents & POLLHUP, 0);
  EXPECT_FALSE(disposer.Stuck(1000));
}

std::atomic<int> seconds_passed = 0;

std::chrono::steady_clock::time_point FakeNow() {
  return std::chrono::steady_clock::time_point(std::chrono::seconds(seconds_passed));
}

// A TCP connection whose peer reads nothing: close(2) of `fd` lingers, in vain, until `peer` goes.
struct Lingering {
  Lingering() {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener.get(), at, size), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    EXPECT_EQ(getsockname(listener.get(), at, &size), 0);
    EXPECT_EQ(connect(fd.get(), at, size), 0);
    peer = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const linger hour{.l_onoff = 1, .l_linger = 3600};
    EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)), 0);
    const std::string bytes(65536, 'x');
    while (send(fd.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
  }
  UniqueFd fd{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  UniqueFd peer;
};

// Many at once are no crime as long as closes go on.
TEST(Disposer, IsStuckWhereManyWaitForAClose) {
  rlimit files{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  Disposer disposer(&FakeNow);
  Lingering hangs;
  const int number = hangs.fd.get();
  disposer.Close(1000, std::move(hangs.fd));
  // close(2) frees the number before it waits.
  while (fcntl(number, F_GETFD) >= 0) usleep(1'000);
  for (size_t i = 0; i < 2 * Disposer::kMostWaiting; ++i) {
    UniqueFd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(fd) << strerror(errno);
    EXPECT_TRUE(disposer.Close(1000, std::move(fd)));
  }
  EXPECT_FALSE(disposer.Stuck(1000));
  seconds_passed += 2;
  EXPECT_TRUE(disposer.Stuck(1000));
  EXPECT_FALSE(disposer.Close(1000, UniqueFd()));
  EXPECT_FALSE(disposer.Stuck(1001));
}

std::atomic<bool> hang;
std::atomic<int> hanging;

void HangAwhile(int) {
  ++hanging;
  while (hang) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  --hanging;
}

TEST(Disposer, UsersWhoseClosesHangKeepNobodyElsesFromGoingOn) {
  hang = true;
  Disposer disposer;
  for (uint32_t uid = 0; uid < 64; ++uid) {
    disposer.Close(uid, UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)), HangAwhile);
  }
  while (hanging < 64) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  EXPECT_TRUE(disposer.Close(1000, UniqueFd(ends[1])));
  pollfd poll_fd{reader.get(), 0, 0};
  EXPECT_EQ(poll(&poll_fd, 1, 5000), 1);
  hang = false;
  while (hanging > 0) std::this_thread::yield();
}

}  // namespace
}  // namespace mrd::memory
