// Attaching to a daemon that behaves, and to all kinds that do not.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>

#include "client/attach_socket.h"
#include "client/client.h"
#include "client/session.h"
#include "mrd/v1/status.h"
#include "tests/client/fake_daemon.h"

namespace mrd::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

absl::Status AttachTo(const FakeDaemon& daemon, milliseconds timeout = std::chrono::seconds(20)) {
  return Client::Attach({.socket_dir = daemon.dir(), .name = "test", .timeout = timeout}).status();
}

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

pid_t PidOfPidfd(int pidfd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(pidfd));
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("Pid:", 0) == 0) return std::stoi(line.substr(4));
  }
  return -1;
}

TEST(Attach, SaysHelloWithAPidfdOfItself) {
  std::promise<ClientSaid> hello;
  FakeDaemon daemon([&](int socket) {
    ClientSaid said = FakeDaemon::Receive(socket);
    FakeDaemon::Send(socket, FakeDaemon::WelcomePacket());
    hello.set_value(std::move(said));
    FakeDaemon::Receive(socket);
  });
  auto client = Client::Attach({.socket_dir = daemon.dir(), .name = "alice"});
  ASSERT_TRUE(client.ok()) << client.status();
  const ClientSaid said = hello.get_future().get();
  EXPECT_EQ(said.packet.hello().protocol_version(), 1u);
  EXPECT_EQ(said.packet.hello().name(), "alice");
  EXPECT_EQ(said.packet.hello().token(), "");
  ASSERT_EQ(said.fds.size(), 1u);
  EXPECT_EQ(PidOfPidfd(said.fds[0].get()), getpid());
}

TEST(Attach, TakesPositiveTimeoutsOnly) {
  for (const AttachOptions& options :
       {AttachOptions{.timeout = milliseconds(0)}, AttachOptions{.timeout = milliseconds(-1)},
        AttachOptions{.call_timeout = milliseconds(0)}}) {
    const absl::Status status = Client::Attach(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(MessageOf(status), HasSubstr("timeout must be positive"));
  }
}

TEST(Attach, KeepsTheWelcomeButShowsNoToken) {
  FakeDaemon daemon;
  auto client = Client::Attach({.socket_dir = daemon.dir()});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(client->session_id(), 7u);
  EXPECT_EQ(client->welcome().daemon_version(), "9.9.9");
  EXPECT_EQ(client->welcome().limits().max_buffers(), 64u);
  EXPECT_EQ(client->welcome().token(), "");
  EXPECT_TRUE(client->SessionStatus().ok());
}

TEST(Attach, AnswersAChallengeWithCredentials) {
  std::promise<ClientSaid> answer;
  FakeDaemon daemon([&](int socket) {
    FakeDaemon::Receive(socket);
    v1::DaemonPacket challenge;
    challenge.mutable_challenge()->set_nonce("fedcba9876543210");
    FakeDaemon::Send(socket, challenge);
    ClientSaid said = FakeDaemon::Receive(socket);
    FakeDaemon::Send(socket, FakeDaemon::WelcomePacket());
    answer.set_value(std::move(said));
    FakeDaemon::Receive(socket);
  });
  auto client = Client::Attach({.socket_dir = daemon.dir()});
  ASSERT_TRUE(client.ok()) << client.status();
  const ClientSaid said = answer.get_future().get();
  EXPECT_EQ(said.packet.answer().nonce(), "fedcba9876543210");
  ASSERT_TRUE(said.credentials.has_value());
  EXPECT_EQ(said.credentials->pid, getpid());
  EXPECT_EQ(said.credentials->uid, geteuid());
  EXPECT_EQ(said.credentials->gid, getegid());
}

TEST(Attach, AnswersOneChallengeOnly) {
  FakeDaemon daemon([](int socket) {
    FakeDaemon::Receive(socket);
    v1::DaemonPacket challenge;
    challenge.mutable_challenge()->set_nonce("fedcba9876543210");
    for (int i = 0; i < 100; ++i) FakeDaemon::Send(socket, challenge);
    FakeDaemon::Receive(socket);
  });
  const absl::Status status = AttachTo(daemon);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(status), HasSubstr("out of order"));
}

v1::DaemonPacket QuotaRefusal() {
  const absl::Status refusal =
      MakeError(v1::QUOTA_SESSIONS, "no more sessions",
                {.limit_name = "sessions of uid 0", .limit = 3, .used = 3, .advice = "End some."});
  v1::DaemonPacket packet;
  packet.mutable_refusal()->set_code(static_cast<int>(refusal.code()));
  packet.mutable_refusal()->set_message(MessageOf(refusal));
  packet.mutable_refusal()->set_detail(DetailOf(refusal)->SerializeAsString());
  return packet;
}

void ExpectQuotaRefusal(const absl::Status& status) {
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(MessageOf(status), HasSubstr("no more sessions"));
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail.has_value()) << status;
  EXPECT_EQ(detail->reason(), v1::QUOTA_SESSIONS);
  EXPECT_EQ(detail->limit(), 3u);
  EXPECT_EQ(detail->used(), 3u);
}

TEST(Attach, TellsARefusalWithItsDetail) {
  FakeDaemon daemon([](int socket) {
    FakeDaemon::Receive(socket);
    FakeDaemon::Send(socket, QuotaRefusal());
  });
  ExpectQuotaRefusal(AttachTo(daemon));
}

// The daemon may refuse before it has read the hello; the kernel then puts ECONNRESET before the
// refusal, or EPIPE in the way of the hello.
TEST(Attach, TellsARefusalThatCameBeforeTheHelloWasRead) {
  FakeDaemon daemon([](int socket) { FakeDaemon::Send(socket, QuotaRefusal()); });
  for (int i = 0; i < 50; ++i) ExpectQuotaRefusal(AttachTo(daemon));
  FakeDaemon slow([](int socket) {
    FakeDaemon::Send(socket, QuotaRefusal());
    usleep(20'000);  // The hello is there by now, unread.
  });
  for (int i = 0; i < 5; ++i) ExpectQuotaRefusal(AttachTo(slow));
}

TEST(Attach, RefusesGarbage) {
  for (const std::string& bytes : {std::string("\xff\xff\xff\xff"), std::string(5000, 'x')}) {
    FakeDaemon daemon([&](int socket) {
      FakeDaemon::Receive(socket);
      FakeDaemon::SendBytes(socket, bytes);
      FakeDaemon::Receive(socket);
    });
    const absl::Status status = AttachTo(daemon);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(MessageOf(status), AllOf(HasSubstr(daemon.dir()), HasSubstr("attach protocol")));
  }
}

TEST(Attach, RefusesAWelcomeWithoutAWholeToken) {
  FakeDaemon daemon([](int socket) {
    v1::DaemonPacket packet = FakeDaemon::WelcomePacket();
    packet.mutable_welcome()->set_token("short");
    FakeDaemon::Send(socket, packet);
    FakeDaemon::Receive(socket);
  });
  EXPECT_EQ(AttachTo(daemon).code(), absl::StatusCode::kUnavailable);
}

TEST(Attach, TellsOfAHangUp) {
  FakeDaemon daemon([](int socket) { FakeDaemon::Receive(socket); });
  const absl::Status status = AttachTo(daemon);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(status), AllOf(HasSubstr(daemon.dir()), HasSubstr("hung up")));
}

TEST(Attach, WaitsForASilentDaemonNoLongerThanItsTimeout) {
  FakeDaemon daemon([](int socket) {
    while (!FakeDaemon::Receive(socket).hung_up) {
    }
  });
  const auto start = Clock::now();
  const absl::Status status = AttachTo(daemon, milliseconds(200));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(Clock::now() - start, milliseconds(200));
  EXPECT_LT(Clock::now() - start, milliseconds(2000));
}

TEST(Attach, S02_NamesThePathAndTheMissingMount) {
  const absl::Status status = Client::Attach({.socket_dir = "/tmp/mrd-not-mounted"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(status),
              AllOf(HasSubstr("/tmp/mrd-not-mounted/attach.sock"), HasSubstr("mount")));
  EXPECT_EQ(DetailOf(status)->errno_name(), "ENOENT");
}

TEST(Attach, SaysThatNoDaemonRuns) {
  FakeDaemon daemon;
  daemon.Stop();
  EXPECT_EQ(DetailOf(AttachTo(daemon))->errno_name(), "ECONNREFUSED");
  std::filesystem::remove(daemon.dir() + "/attach.sock");
  const absl::Status status = AttachTo(daemon);
  EXPECT_EQ(DetailOf(status)->errno_name(), "ENOENT");
  EXPECT_THAT(MessageOf(status), HasSubstr("start mrd"));
}

TEST(Attach, KnowsADirectoryThatIsNearTheRightOne) {
  FakeDaemon daemon;
  const std::string admin_dir = daemon.dir() + "-admin";
  std::filesystem::create_directory(admin_dir);
  std::filesystem::rename(daemon.dir() + "/attach.sock", admin_dir + "/attach.sock");
  const std::string give = "give " + daemon.dir() + ";";
  const auto began = Clock::now();
  // The admin socket takes the session, whose calls would go nowhere.
  const absl::Status as_client = Client::Attach({.socket_dir = admin_dir}).status();
  EXPECT_EQ(as_client.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(MessageOf(as_client), AllOf(HasSubstr(admin_dir + "/mrd.sock"), HasSubstr(give)));
  const absl::Status as_admin = Client::Attach({.socket_dir = admin_dir, .admin = true}).status();
  EXPECT_THAT(MessageOf(as_admin),
              AllOf(HasSubstr(admin_dir + "-admin/attach.sock"), HasSubstr(give)));
  const absl::Status socket = Client::Attach({.socket_dir = admin_dir + "/attach.sock"}).status();
  EXPECT_THAT(MessageOf(socket), HasSubstr("directory of the sockets, " + admin_dir));
  std::filesystem::remove(daemon.dir() + "/mrd.sock");
  EXPECT_TRUE(Client::Attach({.socket_dir = daemon.dir(), .admin = true}).status().code() ==
              absl::StatusCode::kUnavailable);
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(5));
  std::filesystem::remove_all(admin_dir);
}

TEST(Attach, RefusesAPathThatTheKernelCannotTake) {
  const std::string dir = "/tmp/" + std::string(91, 'd');  // With /attach.sock: 108 bytes.
  const absl::Status status = Client::Attach({.socket_dir = dir}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(MessageOf(status), AllOf(HasSubstr("108 bytes"), HasSubstr("107")));
}

// Runs `body` in a forked child; its return value is the child's exit code.
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

TEST(Attach, SaysWhichGroupMayAttach) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become someone else";
  FakeDaemon daemon;
  const std::string path = daemon.dir() + "/attach.sock";
  chmod(daemon.dir().c_str(), 0755);
  chmod(path.c_str(), 0660);
  ASSERT_EQ(chown(path.c_str(), 0, 54321), 0);
  EXPECT_EQ(InChild([&] {
              if (setgid(65534) != 0 || setuid(65534) != 0) return 1;
              const absl::Status status =
                  internal::ConnectAttachSocket(path, false, milliseconds(1000)).status();
              const std::string message = MessageOf(status);
              return status.code() == absl::StatusCode::kPermissionDenied &&
                             message.find(path) != std::string::npos &&
                             message.find("group 54321") != std::string::npos
                         ? 0
                         : 2;
            }),
            0);
}

TEST(SocketDir, IsTheOptionThenTheEnvironmentThenRunMrd) {
  unsetenv("MRD_SOCKET_DIR");
  EXPECT_EQ(internal::ResolveSocketDir(""), "/run/mrd");
  setenv("MRD_SOCKET_DIR", "/tmp/env", 1);
  EXPECT_EQ(internal::ResolveSocketDir(""), "/tmp/env");
  EXPECT_EQ(internal::ResolveSocketDir("/tmp/option//"), "/tmp/option");
  unsetenv("MRD_SOCKET_DIR");
  EXPECT_EQ(internal::AttachPath("/run/mrd", true), "/run/mrd-admin/attach.sock");
}

TEST(Events, ComeInOrderAndThenTheLoss) {
  FakeDaemon daemon([](int socket) {
    FakeDaemon::Welcome(socket);
    for (uint64_t i = 1; i <= 100; ++i) {
      v1::DaemonPacket packet;
      packet.mutable_event()->set_sequence(i);
      FakeDaemon::Send(socket, packet);
    }
  });
  std::vector<uint64_t> sequences;
  std::promise<absl::Status> lost;
  auto client = Client::Attach(
      {.socket_dir = daemon.dir(),
       .on_loss = OnLoss::kTell,
       .on_event = [&](const v1::AttachEvent& event) { sequences.push_back(event.sequence()); },
       .on_lost = [&](const absl::Status& status) { lost.set_value(status); }});
  ASSERT_TRUE(client.ok()) << client.status();
  const absl::Status why = lost.get_future().get();  // A second call would throw.
  ASSERT_EQ(sequences.size(), 100u);
  EXPECT_TRUE(std::is_sorted(sequences.begin(), sequences.end()));
  EXPECT_EQ(ReasonOf(why), v1::SESSION_UNKNOWN);
  EXPECT_THAT(MessageOf(why), HasSubstr("hung up"));
  EXPECT_EQ(client->SessionStatus(), why);
  EXPECT_EQ(client->ListDevices().status(), why);
  EXPECT_EQ(client->CreateBuffer(4096).status(), why);
}

TEST(Events, MayDestroyTheClient) {
  FakeDaemon daemon([](int socket) {
    FakeDaemon::Welcome(socket);
    v1::DaemonPacket packet;
    packet.mutable_event()->set_sequence(1);
    FakeDaemon::Send(socket, packet);
    FakeDaemon::Receive(socket);
  });
  std::unique_ptr<Client> client;
  std::promise<void> attached, destroyed;
  auto made = Client::Attach({.socket_dir = daemon.dir(), .on_event = [&](const v1::AttachEvent&) {
                                attached.get_future().wait();
                                client.reset();
                                destroyed.set_value();
                              }});
  ASSERT_TRUE(made.ok()) << made.status();
  client = std::make_unique<Client>(std::move(*made));
  attached.set_value();
  EXPECT_EQ(destroyed.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

// Tells when the client of one connection has hung up.
class HangUpWatch {
 public:
  FakeDaemon::Script script() {
    return [this](int socket) {
      FakeDaemon::ServeUntilHangUp(socket);
      hung_up_.set_value();
    };
  }
  bool WaitFor(milliseconds timeout) {
    return future_.wait_for(timeout) == std::future_status::ready;
  }

 private:
  std::promise<void> hung_up_;
  std::future<void> future_ = hung_up_.get_future();
};

TEST(Session, EndsWithDetachEvenIfAChildHoldsItsSocket) {
  HangUpWatch watch;
  FakeDaemon daemon(watch.script());
  auto client = Client::Attach({.socket_dir = daemon.dir()});
  ASSERT_TRUE(client.ok()) << client.status();
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(hold[1]);
    char c;
    _exit(read(hold[0], &c, 1) == 0 ? 0 : 1);
  }
  EXPECT_FALSE(watch.WaitFor(milliseconds(50)));
  client->Detach();
  EXPECT_TRUE(watch.WaitFor(std::chrono::seconds(10)));
  EXPECT_EQ(ReasonOf(client->SessionStatus()), v1::SESSION_UNKNOWN);
  close(hold[0]);
  close(hold[1]);
  waitpid(child, nullptr, 0);
}

TEST(Session, BuffersKeepItAlive) {
  HangUpWatch watch;
  FakeDaemon daemon(watch.script());
  std::optional<Buffer> buffer;
  {
    auto client = Client::Attach({.socket_dir = daemon.dir()});
    ASSERT_TRUE(client.ok()) << client.status();
    auto made = client->CreateBuffer(1);
    ASSERT_TRUE(made.ok()) << made.status();
    buffer = std::move(*made);
  }
  EXPECT_FALSE(watch.WaitFor(milliseconds(50)));
  buffer.reset();
  EXPECT_TRUE(watch.WaitFor(std::chrono::seconds(10)));
}

TEST(Session, IsNotTheForkedChilds) {
  HangUpWatch watch;
  FakeDaemon daemon(watch.script());
  auto made = Client::Attach({.socket_dir = daemon.dir()});
  ASSERT_TRUE(made.ok()) << made.status();
  auto client = std::make_unique<Client>(std::move(*made));
  auto buffer = client->CreateBuffer(4096);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(InChild([&] {
              const absl::Status status = client->ListDevices().status();
              if (status.code() != absl::StatusCode::kFailedPrecondition) return 1;
              if (MessageOf(status).find("Fork before") == std::string::npos) return 2;
              if (client->RegMsgs(*buffer).ok() || client->CreateBuffer(1).ok()) return 3;
              client->Detach();
              buffer = absl::CancelledError();  // Destroys the child's copy.
              client.reset();
              if (AttachTo(daemon).code() != absl::StatusCode::kFailedPrecondition) return 4;
              return 0;
            }),
            0);
  EXPECT_FALSE(watch.WaitFor(milliseconds(100)));
  EXPECT_TRUE(client->SessionStatus().ok());
}

// A prefork server that tries too early forks children that attach all the same. In a process of
// its own: here others have attached.
TEST(Attach, AFailedAttemptDoesNotHinderTheForkedChild) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        if (Client::Attach({.socket_dir = "/nowhere"}).ok()) _exit(1);
        _exit(InChild([] {
          FakeDaemon daemon;
          return AttachTo(daemon).ok() ? 0 : 2;
        }));
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(Attach, LeavesNoDescriptorsBehind) {
  FakeDaemon refusing([](int socket) {
    FakeDaemon::Receive(socket);
    FakeDaemon::Send(socket, QuotaRefusal());
  });
  FakeDaemon serving;
  const auto round = [&] {
    EXPECT_FALSE(AttachTo(refusing).ok());
    EXPECT_TRUE(AttachTo(serving).ok());
  };
  // The fake daemon's own ends of the connections are closed a moment later.
  const auto settled = [](int expected) {
    for (int i = 0; i < 1000 && CountFds() != expected; ++i) usleep(5'000);
    return CountFds();
  };
  const int before = CountFds();
  round();  // gRPC keeps some descriptors of its own from the first channel on.
  usleep(200'000);
  const int after_first = CountFds();
  for (int i = 0; i < 50; ++i) round();
  EXPECT_EQ(settled(after_first), after_first) << before;
}

}  // namespace
}  // namespace mrd::testing
