#include "daemon/ipc/end_connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <string.h>

#include <chrono>
#include <thread>

#include "tests/ipc/lingering.h"

namespace mrd::ipc {
namespace {

constexpr uid_t kUid = 1000;

void Send(const UniqueFd& socket, const std::string& bytes, int fd = -1, int flags = 0) {
  iovec data{const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  }
  ASSERT_EQ(sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT | flags),
            static_cast<ssize_t>(bytes.size()));
}

class EndConnectionTest : public testing::TestWithParam<int> {
 protected:
  EndConnectionTest() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, GetParam() | SOCK_CLOEXEC, 0, ends), 0);
    ours_.reset(ends[0]);
    theirs_.reset(ends[1]);
  }

  // Takes no time, whatever waits in it.
  void End(Readers readers = Readers::kNone) {
    const auto began = std::chrono::steady_clock::now();
    EndConnection(std::move(ours_), kUid, disposer_, readers);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
    EXPECT_LT(send(theirs_.get(), "x", 1, MSG_NOSIGNAL), 0);
  }
  // Sends it as its last owner, and ends the connection.
  void EndWith(Lingering& lingering, int flags = 0) {
    ASSERT_GE(lingering.fd(), 0);
    Send(theirs_, "y", lingering.fd(), flags);
    lingering.Forget();
    End();
  }

  memory::Disposer disposer_;
  UniqueFd ours_;
  UniqueFd theirs_;
};
INSTANTIATE_TEST_SUITE_P(, EndConnectionTest, testing::Values(SOCK_STREAM, SOCK_SEQPACKET),
                         [](const auto& info) {
                           return info.param == SOCK_STREAM ? "Stream" : "Packets";
                         });

TEST_P(EndConnectionTest, OneInWhichNothingWaitsIsClosedAtOnce) {
  const int fd = ours_.get();
  End();
  EXPECT_LT(fcntl(fd, F_GETFD), 0);
}

// Users whose closes hang come again and again: it must not pile up behind those.
TEST_P(EndConnectionTest, SoIsOneWithoutDescriptors) {
  const int fd = ours_.get();
  if (GetParam() == SOCK_SEQPACKET) Send(theirs_, "");
  Send(theirs_, std::string(10000, 'x'));
  Send(theirs_, "y");
  End();
  EXPECT_LT(fcntl(fd, F_GETFD), 0);
}

TEST_P(EndConnectionTest, WhatWaitsInItIsDropped) {
  // Another descriptor keeps it open.
  const UniqueFd other(dup(ours_.get()));
  Send(theirs_, std::string(50000, 'x'));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  {
    const UniqueFd writer(ends[1]);
    if (GetParam() == SOCK_SEQPACKET) Send(theirs_, "");
    Send(theirs_, "y", writer.get());
  }
  End();
  pollfd hang_up{reader.get(), 0, 0};
  EXPECT_EQ(poll(&hang_up, 1, 5000), 1) << "the descriptor is still there";
}

TEST_P(EndConnectionTest, ADescriptorWhoseCloseHangsHoldsUpNobody) {
  Lingering lingering;
  Send(theirs_, "x");
  EndWith(lingering);
}

TEST_P(EndConnectionTest, NorWhereOthersRead) {
  if (GetParam() != SOCK_STREAM) GTEST_SKIP() << "only streams have others";
  Lingering lingering;
  ASSERT_GE(lingering.fd(), 0);
  Send(theirs_, "y", lingering.fd());
  lingering.Forget();
  End(Readers::kOthers);
}

TEST_P(EndConnectionTest, BehindAnEmptyPacketEither) {
  if (GetParam() == SOCK_STREAM) GTEST_SKIP() << "a stream has no empty packets";
  Lingering lingering;
  Send(theirs_, "");
  EndWith(lingering);
}

TEST_P(EndConnectionTest, OutOfBandEither) {
  if (GetParam() != SOCK_STREAM) GTEST_SKIP() << "only streams have that";
  Lingering lingering;
  EndWith(lingering, MSG_OOB);
}

}  // namespace
}  // namespace mrd::ipc
