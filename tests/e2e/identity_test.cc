// Who a session is, is the kernel's word: SO_PEERPIDFD, or on older kernels a challenge.
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

UniqueFd PidfdOf(pid_t pid) { return UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))); }

class IdentityTest : public DaemonTest {
 protected:
  std::string attach_path() const { return dir() + "/attach.sock"; }
  v1::Session SessionNamed(const std::string& name) {
    const auto listed = admin().ListSessions().response;
    for (const auto& session : listed.sessions()) {
      if (session.name() == name) return session;
    }
    return {};
  }
  // The challenge of a fresh connection.
  std::string ChallengeOn(const AttachSocket& socket) {
    EXPECT_TRUE(socket.SendHello("challenged"));
    const auto packet = socket.Receive();
    EXPECT_TRUE(packet && packet->has_challenge());
    return packet ? packet->challenge().nonce() : "";
  }
};

TEST_F(IdentityTest, TheKernelSaysWhoItIs) {
  Start();
  RawClient client(dir(), {.name = "me"});
  const v1::Session me = SessionNamed("me");
  EXPECT_EQ(me.pid(), getpid());
  EXPECT_EQ(me.uid(), getuid());
  EXPECT_EQ(me.gid(), getgid());
  EXPECT_EQ(me.death(), "pidfd");
  EXPECT_FALSE(me.admin());
  EXPECT_EQ(me.comm() + "\n", ReadFile("/proc/self/comm"));
  EXPECT_EQ(me.session_id(), client.session_id());
}

TEST_F(IdentityTest, AnotherUsersClientIsThatUser) {
  Start({});
  // The sockets are the group's: opened here as an operator would.
  ASSERT_EQ(chmod(attach_path().c_str(), 0666), 0);
  ASSERT_EQ(chmod((dir() + "/mrd.sock").c_str(), 0666), 0);
  Process client({.argv = {"tests/e2e/test_client", dir()}, .uid = 65533});
  ASSERT_EQ(client.Ask("attach").substr(0, 2), "ok");
  const v1::Session session = SessionNamed("test client");
  EXPECT_EQ(session.uid(), 65533u);
  EXPECT_EQ(session.pid(), client.pid());
  EXPECT_EQ(client.Ask("buffer 4096"), "ok");
  EXPECT_EQ(client.Ask("register 1").substr(0, 2), "ok");
  const std::string refused = client.Ask("admin");
  EXPECT_NE(refused.find("PERMISSION_DENIED"), std::string::npos) << refused;
}

TEST_F(IdentityTest, TheOverflowUserIsNeverAnAdmin) {
  Start();
  const std::string admin_dir = dir() + "-admin";
  ASSERT_EQ(chmod(admin_dir.c_str(), 0777), 0);
  ASSERT_EQ(chmod((admin_dir + "/attach.sock").c_str(), 0666), 0);
  ASSERT_EQ(chmod((dir() + "/mrd.sock").c_str(), 0666), 0);
  Process client({.argv = {"tests/e2e/test_client", dir()}, .uid = 65534});
  ASSERT_EQ(client.Ask("admin").substr(0, 2), "ok");
  EXPECT_FALSE(SessionNamed("test client").admin());
}

TEST_F(IdentityTest, AHelloMustBeOne) {
  Start();
  const auto refused = [&](const v1::ClientPacket& packet) {
    const AttachSocket socket(attach_path());
    EXPECT_TRUE(socket.Send(packet));
    const v1::Reason reason = socket.ReceiveRefusal();
    EXPECT_TRUE(socket.HangsUp());
    return reason;
  };
  v1::ClientPacket packet;
  packet.mutable_hello();
  EXPECT_EQ(refused(packet), v1::UNSUPPORTED) << "version 0";
  packet.mutable_hello()->set_protocol_version(1);
  for (const std::string& name : {std::string(65, 'x'), std::string("a\nb"), std::string("\x1b[2J"),
                                  std::string("nul\0", 4), std::string("\xc2\x85")}) {
    packet.mutable_hello()->set_name(name);
    EXPECT_EQ(refused(packet), v1::REQUEST_INVALID) << name;
  }
  packet.mutable_hello()->set_name("ok");
  packet.mutable_hello()->set_token("0123456789abcdef");
  EXPECT_EQ(refused(packet), v1::SESSION_UNKNOWN) << "a token of nobody";
  packet.Clear();
  packet.mutable_pass_buffers()->add_buffer_ids(1);
  EXPECT_EQ(refused(packet), v1::REQUEST_INVALID);
  packet.mutable_answer()->set_nonce("unasked");
  EXPECT_EQ(refused(packet), v1::REQUEST_INVALID);
}

TEST_F(IdentityTest, ANewerClientsHelloIsTaken) {
  Start();
  const AttachSocket socket(attach_path());
  v1::ClientPacket packet;
  packet.mutable_hello()->set_protocol_version(2);
  ASSERT_TRUE(socket.Send(packet));
  const auto welcome = socket.Receive();
  ASSERT_TRUE(welcome && welcome->has_welcome());
  EXPECT_EQ(welcome->welcome().protocol_version(), 1u) << "what both speak";
}

TEST_F(IdentityTest, WhoSaysNothingIsHungUpOnAfterFiveSeconds) {
  Start();
  const AttachSocket silent(attach_path());
  const auto began = Clock::now();
  EXPECT_TRUE(silent.HangsUp());
  EXPECT_GE(Clock::now() - began, milliseconds(4500));
  EXPECT_LE(Clock::now() - began, milliseconds(7000));
}

// A connection whose maker has died: another process holds it.
TEST_F(IdentityTest, ASocketThatOutlivedTheProcessThatConnectedAttachesNobodyForLong) {
  Start();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const UniqueFd mine(ends[0]);
  UniqueFd theirs(ends[1]);
  const std::string path = attach_path();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.data(), path.size());
  UniqueFd socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const pid_t child = fork();  // Only system calls in it.
  if (child == 0) {
    _exit(connect(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const AttachSocket orphan(std::move(socket_fd));
  orphan.SendHello("orphan");
  EXPECT_TRUE(orphan.HangsUp(Promised(seconds(1))));
  EXPECT_TRUE(
      WaitUntil(Promised(seconds(1)), [&] { return SessionNamed("orphan").session_id() == 0; }));
}

class ChallengeTest : public IdentityTest {
 protected:
  ChallengeTest() { Start({.set = "peer_pidfd=0"}); }
};

TEST_F(ChallengeTest, TheAnswerOfTheProcessThatConnectedIsTaken) {
  RawClient client(dir(), {.name = "me"});
  EXPECT_EQ(SessionNamed("me").pid(), getpid());
  EXPECT_EQ(SessionNamed("me").death(), "pidfd");
  Process other({.argv = {"tests/e2e/test_client", dir()}});
  ASSERT_EQ(other.Ask("attach").substr(0, 2), "ok");
  EXPECT_EQ(SessionNamed("test client").pid(), other.pid());
  other.Kill(SIGKILL);
  other.Wait(kPatience);
  EXPECT_TRUE(WaitUntil(Promised(seconds(1)),
                        [&] { return SessionNamed("test client").session_id() == 0; }));
}

TEST_F(ChallengeTest, AWrongNonceIsRefused) {
  for (const bool shortened : {false, true}) {
    const AttachSocket socket(attach_path());
    std::string nonce = ChallengeOn(socket);
    ASSERT_EQ(nonce.size(), 16u);
    if (shortened) {
      nonce.pop_back();
    } else {
      nonce[15] ^= 1;
    }
    socket.SendAnswer(nonce);
    EXPECT_EQ(socket.ReceiveRefusal(), v1::POLICY_DENIED);
    EXPECT_TRUE(socket.HangsUp());
  }
}

TEST_F(ChallengeTest, ChallengesDiffer) {
  const AttachSocket one(attach_path());
  const AttachSocket two(attach_path());
  EXPECT_NE(ChallengeOn(one), ChallengeOn(two));
}

TEST_F(ChallengeTest, TheAnswerOfAnotherProcessIsRefused) {
  const AttachSocket socket(attach_path());
  const std::string nonce = ChallengeOn(socket);
  v1::ClientPacket packet;
  packet.mutable_answer()->set_nonce(nonce);
  const std::string bytes = packet.SerializeAsString();
  const pid_t child = fork();  // Only system calls in it.
  if (child == 0) {
    // The kernel attaches the sender's credentials by itself.
    _exit(send(socket.fd(), bytes.data(), bytes.size(), 0) == ssize_t(bytes.size()) ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_EQ(socket.ReceiveRefusal(), v1::POLICY_DENIED);
  EXPECT_TRUE(socket.HangsUp());
}

TEST_F(ChallengeTest, AnotherUidInTheCredentialsIsRefused) {
  const AttachSocket socket(attach_path());
  const std::string nonce = ChallengeOn(socket);
  socket.SendAnswer(nonce, ucred{getpid(), 12345, getgid()});  // As root one may say so.
  EXPECT_EQ(socket.ReceiveRefusal(), v1::POLICY_DENIED);
}

TEST_F(ChallengeTest, NoAnswerWithinFiveSecondsIsAHangUp) {
  const AttachSocket socket(attach_path());
  const auto began = Clock::now();
  ChallengeOn(socket);
  EXPECT_TRUE(socket.HangsUp());
  EXPECT_GE(Clock::now() - began, milliseconds(4500));
  EXPECT_LE(Clock::now() - began, milliseconds(7000));
}

TEST_F(ChallengeTest, BuffersBeforeTheAnswerAreRefused) {
  const AttachSocket socket(attach_path());
  ChallengeOn(socket);
  const Memory memory(kPage);
  socket.SendBuffers({1}, {memory.fd()});
  EXPECT_EQ(socket.ReceiveRefusal(), v1::REQUEST_INVALID);
}

// The daemon in a pid namespace of its own, as in a container: clients' pids are hidden from it.
class HiddenPidTest : public IdentityTest {};

TEST_F(HiddenPidTest, ThePidfdOfTheKernelTellsOfTheDeathAllTheSame) {
  Start({.own_pid_namespace = true});
  Process client({.argv = {"tests/e2e/test_client", dir()}});
  ASSERT_EQ(client.Ask("attach").substr(0, 2), "ok");
  EXPECT_EQ(SessionNamed("test client").pid(), 0);
  EXPECT_EQ(SessionNamed("test client").death(), "pidfd");
  const pid_t child = std::stol(client.Ask("sleep").substr(3));
  client.Kill(SIGKILL);
  EXPECT_TRUE(WaitUntil(Promised(seconds(1)),
                        [&] { return SessionNamed("test client").session_id() == 0; }));
  WaitUntil(kPatience,
            [&] { return ReadFile("/proc/" + std::to_string(child) + "/comm") == "sleep\n"; });
  KillStranger(child, "sleep");
}

TEST_F(HiddenPidTest, OnOlderKernelsTheClientsOwnPidfdServesForItsDeath) {
  Start({.set = "peer_pidfd=0", .own_pid_namespace = true});
  Process process({.argv = {"/bin/sleep", "60"}});
  const UniqueFd pidfd = PidfdOf(process.pid());
  RawClient client(dir(), {.name = "hidden", .hello_fds = {pidfd.get()}});
  EXPECT_EQ(SessionNamed("hidden").pid(), 0);
  EXPECT_EQ(SessionNamed("hidden").death(), "pidfd of the client");
  EXPECT_EQ(SessionNamed("hidden").comm(), "");
  process.Kill(SIGKILL);
  EXPECT_TRUE(client.attach().HangsUp(Promised(seconds(1))));
}

TEST_F(HiddenPidTest, WithoutOneAHangUpTellsIt) {
  Start({.set = "peer_pidfd=0", .own_pid_namespace = true});
  RawClient client(dir(), {.name = "hidden"});
  EXPECT_EQ(SessionNamed("hidden").death(), "hang-up");
  const Memory memory(kPage);
  client.RegisterAll(memory);
  client.HangUp();
  ExpectNothingHeld(Promised(seconds(1)));
}

TEST_F(HiddenPidTest, WhatIsNoPidfdIsNotWatched) {
  Start({.set = "peer_pidfd=0", .own_pid_namespace = true});
  const Memory memory(kPage);
  RawClient client(dir(), {.name = "hidden", .hello_fds = {memory.fd()}});
  EXPECT_EQ(SessionNamed("hidden").death(), "hang-up");
}

}  // namespace
}  // namespace mrd::e2e
