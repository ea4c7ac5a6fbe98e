// Descriptors whose last close hangs, sent by any user and read by nobody: the kernel drops them
// with the connection in which they wait, and whoever does that hangs too.
#include "tests/ipc/lingering.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <list>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

constexpr uid_t kUser = 65533;
constexpr int kMostConnections = 8;

// The calling thread alone is of another user.
class AsUser {
 public:
  AsUser() { Require(syscall(SYS_setresuid, -1, kUser, -1) == 0, "setresuid"); }
  ~AsUser() { Require(syscall(SYS_setresuid, -1, 0, -1) == 0, "setresuid"); }
};

class LingeringTest : public DaemonTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    Start({.set = "connections=" + std::to_string(kMostConnections)});
    chmod((dir() + "/attach.sock").c_str(), 0666);
    chmod((dir() + "/mrd.sock").c_str(), 0666);
  }

  AttachSocket ConnectAs(const std::string& name, int type) {
    const AsUser user;
    return AttachSocket(Connect(dir() + "/" + name, type));
  }
  // The daemon sees all that `act` does at once.
  void WhileStopped(const std::function<void()>& act) {
    const auto runs = [this](bool runs) {
      return WaitUntil(kPatience, [&] {
        const std::string stat = ReadFile("/proc/" + std::to_string(daemon().pid()) + "/stat");
        return (stat.find(") T ") == std::string::npos) == runs;
      });
    };
    daemon().process().Kill(SIGSTOP);
    EXPECT_TRUE(runs(false));
    act();
    daemon().process().Kill(SIGCONT);
    EXPECT_TRUE(runs(true));
  }
  // As its last owner.
  void SendLast(const AttachSocket& socket) {
    lingering_.emplace_back();
    ASSERT_GE(lingering_.back().fd(), 0);
    ASSERT_TRUE(socket.SendBytes("y", {lingering_.back().fd()}));
    lingering_.back().Forget();
  }
  void ExpectServed() {
    const auto began = Clock::now();
    for (int i = 0; i < 4; ++i) {  // More than there are threads that take calls.
      RawClient client(dir());
      const Memory memory(kPage);
      client.RegisterAll(memory);
    }
    EXPECT_LT(Clock::now() - began, Promised(seconds(2)));
  }
  // The closes hang still; they end with this.
  void ExpectTheyHang() {
    EXPECT_GT(daemon().resources().fds, baseline().fds);
    lingering_.clear();
    ExpectNothingHeld();
  }

  std::list<Lingering> lingering_;
};

TEST_F(LingeringTest, BehindAHelloThatIsRefused) {
  const AttachSocket socket = ConnectAs("attach.sock", SOCK_SEQPACKET);
  WhileStopped([&] {
    socket.SendBytes("this is no hello");
    SendLast(socket);
  });
  EXPECT_TRUE(socket.HangsUp(Promised(seconds(2))));
  ExpectServed();
  ExpectTheyHang();
}

TEST_F(LingeringTest, BehindAPacketThatEndsTheSession) {
  const AttachSocket socket = ConnectAs("attach.sock", SOCK_SEQPACKET);
  socket.SendHello();
  ASSERT_TRUE(socket.Receive());
  WhileStopped([&] {
    socket.SendBytes("");
    SendLast(socket);
  });
  EXPECT_TRUE(socket.HangsUp(Promised(seconds(2))));
  ExpectServed();
  ExpectTheyHang();
}

TEST_F(LingeringTest, InAConnectionBeyondTheUsersLimit) {
  std::vector<AttachSocket> connections;
  for (int i = 0; i < kMostConnections; ++i) {
    connections.push_back(ConnectAs("mrd.sock", SOCK_STREAM));
  }
  WhileStopped([&] {
    connections.push_back(ConnectAs("mrd.sock", SOCK_STREAM));
    SendLast(connections.back());
  });
  EXPECT_TRUE(connections.back().HangsUp(Promised(seconds(2))));
  ExpectServed();
  connections.clear();
  ExpectTheyHang();
}

TEST_F(LingeringTest, BehindBytesForWhichGrpcEndsTheConnection) {
  std::vector<AttachSocket> connections;
  for (int i = 0; i < kMostConnections; ++i) {
    connections.push_back(ConnectAs("mrd.sock", SOCK_STREAM));
  }
  WhileStopped([&] {
    for (const AttachSocket& connection : connections) {
      const std::string garbage(100000, 'x');
      ASSERT_TRUE(connection.SendBytes(garbage));
      SendLast(connection);
    }
  });
  for (const AttachSocket& connection : connections) {
    EXPECT_TRUE(connection.HangsUp(Promised(seconds(2))));
  }
  ExpectServed();
  ExpectTheyHang();
}

TEST_F(LingeringTest, TheDaemonEndsAllTheSame) {
  const AttachSocket refused = ConnectAs("attach.sock", SOCK_SEQPACKET);
  std::vector<AttachSocket> waiting;
  WhileStopped([&] {
    refused.SendBytes("this is no hello");
    SendLast(refused);
    daemon().process().Kill(SIGTERM);
    // Never accepted, it may be.
    for (int i = 0; i < 100; ++i) {
      waiting.push_back(ConnectAs("attach.sock", SOCK_SEQPACKET));
      waiting.push_back(ConnectAs("mrd.sock", SOCK_STREAM));
    }
    SendLast(waiting[waiting.size() - 2]);
    SendLast(waiting.back());
  });
  const auto began = Clock::now();
  ExpectEnd();
  EXPECT_LT(Clock::now() - began, Promised(seconds(5)));
}

TEST_F(LingeringTest, AUserWhoseClosesHangIsReadNoMore) {
  std::vector<AttachSocket> sockets;
  for (int i = 0; i < 200; ++i) {
    sockets.push_back(ConnectAs("attach.sock", SOCK_SEQPACKET));
    sockets.back().SendHello();
    ASSERT_TRUE(sockets.back().Receive());
  }
  SendLast(sockets.back());
  EXPECT_TRUE(sockets.back().HangsUp(Promised(seconds(2))));
  const std::vector<int> many(253, sockets.back().fd());
  for (const AttachSocket& socket : sockets) socket.SendBytes("too many", many);
  for (const AttachSocket& socket : sockets) EXPECT_TRUE(socket.HangsUp());
  EXPECT_LT(daemon().resources().fds, baseline().fds + 10000);
  ExpectServed();
  sockets.clear();
  ExpectTheyHang();
}

}  // namespace
}  // namespace mrd::e2e
