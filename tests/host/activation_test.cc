// Sockets as a service manager passes them, made by the test.
#include "daemon/host/activation.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/host/fd_store.h"
#include "tests/host/captured_log.h"
#include "tests/host/notify_receiver.h"
#include "tests/host/temporary_dir.h"

namespace mrd::host {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.data(), path.size());
  return address;
}

class ActivationTest : public testing::Test {
 protected:
  ActivationTest() {
    EXPECT_EQ(mkdir(clients_.c_str(), 0755), 0);
    EXPECT_EQ(mkdir(admins_.c_str(), 0700), 0);
  }

  void Give(const std::string& name, int fd) { inherited_.push_back({name, UniqueFd(fd)}); }
  static int Listening(int type, const std::string& path, int backlog = 10) {
    const int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    const sockaddr_un address = AddressOf(path);
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0) << path;
    EXPECT_EQ(listen(fd, backlog), 0);
    return fd;
  }
  void GiveRpc() { Give("rpc", Listening(SOCK_STREAM, rpc_)); }
  void GiveAttach() { Give("attach", Listening(SOCK_SEQPACKET, attach_)); }
  void GiveAdmin() { Give("admin", Listening(SOCK_SEQPACKET, admin_)); }
  void GiveAll() {
    // In any order.
    GiveAdmin();
    GiveRpc();
    GiveAttach();
  }

  std::string Refusal() {
    const auto sockets = TakeSockets(inherited_);
    EXPECT_FALSE(sockets.ok());
    return std::string(sockets.status().message());
  }
  std::vector<std::string> Left() const {
    std::vector<std::string> names;
    for (const InheritedFd& each : inherited_) names.push_back(each.name);
    return names;
  }

  TemporaryDir dir_;
  const std::string clients_ = dir_ / "mrd", admins_ = dir_ / "mrd-admin";
  const std::string rpc_ = clients_ + "/mrd.sock", attach_ = clients_ + "/attach.sock",
                    admin_ = admins_ + "/attach.sock";
  std::vector<InheritedFd> inherited_;
};

TEST_F(ActivationTest, TakesTheThreeAndLeavesTheRest) {
  Give("e17", open("/dev/null", O_RDONLY | O_CLOEXEC));
  GiveAll();
  Give("", open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto sockets = TakeSockets(inherited_);
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  ASSERT_TRUE(sockets->has_value());
  EXPECT_TRUE((*sockets)->given());
  EXPECT_EQ((*sockets)->dir(), clients_);
  EXPECT_EQ((*sockets)->admin_path(), admin_);
  EXPECT_THAT(Left(), ElementsAre("e17", ""));

  const auto path_of = [](const UniqueFd& socket) {
    sockaddr_un address{};
    socklen_t length = sizeof address;
    getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
    return std::string(address.sun_path);
  };
  EXPECT_EQ(path_of((*sockets)->rpc), rpc_);
  EXPECT_EQ(path_of((*sockets)->attach), attach_);
  EXPECT_EQ(path_of((*sockets)->admin_attach), admin_);
  EXPECT_TRUE(fcntl((*sockets)->rpc.get(), F_GETFL) & O_NONBLOCK) << "the main loop accepts";
}

TEST_F(ActivationTest, RemovesNothingAndMakesNothing) {
  GiveAll();
  {
    const auto sockets = TakeSockets(inherited_);
    EXPECT_TRUE(sockets.ok());
  }
  EXPECT_TRUE(std::filesystem::is_socket(rpc_));
  EXPECT_TRUE(std::filesystem::is_socket(admin_));
  EXPECT_FALSE(std::filesystem::exists(clients_ + "/lock"));
}

TEST_F(ActivationTest, WithoutAnyItHasNothing) {
  Give("e17", open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto sockets = TakeSockets(inherited_);
  ASSERT_TRUE(sockets.ok());
  EXPECT_FALSE(sockets->has_value());
  EXPECT_THAT(Left(), ElementsAre("e17"));
}

TEST_F(ActivationTest, WhoConnectsIsToldThatThePeerIsThisProcess) {
  GiveAll();
  // As systemd does it: another process listens first.
  EXPECT_EXIT(
      {
        const auto sockets = TakeSockets(inherited_);
        const UniqueFd client(socket(AF_UNIX, SOCK_SEQPACKET, 0));
        const sockaddr_un address = AddressOf(attach_);
        ucred peer{};
        socklen_t length = sizeof peer;
        const bool told = sockets.ok() &&
                          connect(client.get(), reinterpret_cast<const sockaddr*>(&address),
                                  sizeof address) == 0 &&
                          getsockopt(client.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
        _exit(told && peer.pid == getpid() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(ActivationTest, SomeOfThemAreAnErrorThatNamesTheUnitOfTheOthers) {
  GiveAttach();
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("\"attach\" without \"rpc\" and \"admin\""),
                               HasSubstr("start mrd.socket and mrd-admin.socket")));
}

TEST_F(ActivationTest, OneThatIsThereTwiceIsAnError) {
  GiveAll();
  Give("attach", Listening(SOCK_SEQPACKET, clients_ + "/other.sock"));
  EXPECT_THAT(Refusal(), HasSubstr("two sockets \"attach\""));
}

TEST_F(ActivationTest, OneOfAnotherKindIsAnErrorThatSaysWhatItsUnitNeeds) {
  const struct {
    std::function<int()> made;
    const char* what;
  } kCases[] = {
      {[] { return open("/dev/null", O_RDONLY | O_CLOEXEC); }, "no Unix socket"},
      {[] { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }, "no Unix socket"},
      {[this] { return Listening(SOCK_STREAM, attach_); }, "another type"},
      {[] { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); }, "does not listen"},
      {[] {
         const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
         const sa_family_t family = AF_UNIX;  // Bound to a name that the kernel chooses.
         EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&family), sizeof family), 0);
         EXPECT_EQ(listen(fd, 1), 0);
         return fd;
       },
       "no path"},
  };
  for (const auto& each : kCases) {
    inherited_.clear();
    for (const std::string& path : {rpc_, attach_, admin_}) unlink(path.c_str());
    GiveRpc();
    GiveAdmin();
    Give("attach", each.made());
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("\"attach\""), HasSubstr(each.what),
                                 HasSubstr("mrd-attach.socket needs ListenSequentialPacket=")));
  }
}

TEST_F(ActivationTest, DirectoriesThatAreNotSafeAreNotServed) {
  GiveAll();
  ASSERT_EQ(chmod(clients_.c_str(), 0777), 0);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("will not use " + clients_), HasSubstr("everybody")));
  inherited_.clear();
  for (const std::string& path : {rpc_, attach_, admin_}) unlink(path.c_str());
  ASSERT_EQ(chmod(clients_.c_str(), 01777), 0);
  for (const mode_t mode : {0755, 0710, 0770}) {
    GiveAll();
    ASSERT_EQ(chmod(admins_.c_str(), mode), 0);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("will not use " + admins_), HasSubstr("0700")));
    inherited_.clear();
    for (const std::string& path : {rpc_, attach_, admin_}) unlink(path.c_str());
  }
  if (geteuid() != 0) return;  // Only root makes another user's directory.
  ASSERT_EQ(chmod(admins_.c_str(), 0700), 0);
  GiveAll();
  ASSERT_EQ(chown(admins_.c_str(), 65533, -1), 0);
  EXPECT_THAT(Refusal(), HasSubstr("it belongs to uid 65533"));
}

TEST_F(ActivationTest, WhatNobodyKnowsIsClosedAndSaid) {
  const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  Give("jun\nk", fd);
  CapturedLog log;
  NotifyReceiver systemd(dir_ / "notify");
  setenv("NOTIFY_SOCKET", (dir_ / "notify").c_str(), 1);
  FdStore store(/*limit=*/0, NamesOf(inherited_));
  CloseUnknown(std::move(inherited_), store);
  unsetenv("NOTIFY_SOCKET");
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(systemd.Waiting(), "FDSTOREREMOVE=1\nFDNAME=jun\nk");
  EXPECT_THAT(log.Taken(), HasSubstr("a descriptor \"jun\\nk\" that mrd does not know: closed"));
}

}  // namespace
}  // namespace mrd::host
