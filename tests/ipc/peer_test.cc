// What the kernel says of a peer, as rules of the policy look at it.
#include "daemon/ipc/peer.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <sstream>

namespace mrd::ipc {
namespace {

TEST(UnifiedCgroup, IsTheLineOfTheHierarchyWithoutANumber) {
  EXPECT_EQ(UnifiedCgroup("0::/user.slice/a b\n"), "/user.slice/a b");
  EXPECT_EQ(UnifiedCgroup("9:name=systemd:/x\n4:memory:/y\n0::/\n"), "/");
  EXPECT_EQ(UnifiedCgroup("0::/no/newline"), "/no/newline");
  EXPECT_EQ(UnifiedCgroup("10::/x\n4:memory:/y\n"), "") << "cgroup v1 only";
  EXPECT_EQ(UnifiedCgroup(""), "");
  // Whoever may make cgroups chose the name: it goes to terminals.
  EXPECT_EQ(UnifiedCgroup("0::/a\x1b[2J\xff\n"), "/a?[2J?");
}

std::string OwnCgroup() {
  std::ifstream file("/proc/self/cgroup");
  std::ostringstream text;
  text << file.rdbuf();
  return UnifiedCgroup(text.str());
}

class PeerTest : public testing::Test {
 protected:
  PeerTest() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0); }
  ~PeerTest() override {
    close(ends_[0]);
    close(ends_[1]);
  }
  int ends_[2];
};

TEST_F(PeerTest, ItsCgroupIsTheOneThatProcShows) {
  for (const bool peer_pidfd : {true, false}) {
    const auto peer = PeerOf(ends_[0], peer_pidfd);
    ASSERT_TRUE(peer.ok());
    EXPECT_EQ(CgroupOf(*peer), OwnCgroup());
  }
}

TEST_F(PeerTest, OfAHiddenOrEndedProcessNoneIsKnown) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  Peer peer = *PeerOf(ends_[0], false);
  peer.pid = 0;
  EXPECT_EQ(CgroupOf(peer), "");
  // The pid is a living one's, and the pidfd that of one that has ended: the pid was used again.
  peer.pidfd.reset(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  ASSERT_TRUE(peer.pidfd);
  peer.pid = getpid();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(CgroupOf(peer), "");
  peer.pidfd.reset();
  EXPECT_EQ(CgroupOf(peer), "");
}

TEST_F(PeerTest, ItsGroupsAreThoseOfTheTimeItConnected) {
  ASSERT_EQ(getuid(), 0u) << "setgroups(2) needs it";
  const pid_t child = fork();
  if (child == 0) {
    for (const size_t count : {0, 3, 32, 33, 1000}) {
      std::vector<gid_t> groups(count);
      std::iota(groups.begin(), groups.end(), 5000);
      if (setgroups(count, groups.data()) != 0) _exit(1);
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) _exit(2);
      if (setgroups(0, nullptr) != 0) _exit(3);
      if (GroupsOf(ends[0]) != groups) _exit(4);
    }
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << WEXITSTATUS(status);
}

}  // namespace
}  // namespace mrd::ipc
