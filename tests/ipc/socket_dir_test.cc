#include "daemon/ipc/socket_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <utility>

namespace {
std::function<void()> before_flock;  // Once.
}

// In place of the C library's.
extern "C" int flock(int fd, int operation) noexcept {
  if (before_flock) std::exchange(before_flock, nullptr)();
  return static_cast<int>(syscall(SYS_flock, fd, operation));
}

namespace mrd::ipc {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SocketDirTest : public testing::Test {
 protected:
  SocketDirTest() {
    char path[] = "/tmp/mrd-socket-dir-XXXXXX";
    base_ = mkdtemp(path);
    dir_ = base_ + "/mrd";
  }
  ~SocketDirTest() override { std::filesystem::remove_all(base_); }

  absl::Status Open() { return SocketDir::Open({.dir = dir_, .group = {}}).status(); }
  static mode_t ModeOf(const std::string& path) {
    struct stat found {};
    stat(path.c_str(), &found);
    return found.st_mode & 07777;
  }
  void Make(const std::string& path, mode_t mode, uid_t uid) {
    ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    ASSERT_EQ(chown(path.c_str(), uid, -1), 0);
  }
  void NeedRoot() {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to make another user's directory";
  }

  std::string base_;
  std::string dir_;
};

TEST_F(SocketDirTest, MakesBothDirectoriesWithTheirModes) {
  ASSERT_TRUE(Open().ok()) << Open();
  EXPECT_EQ(ModeOf(dir_), 0755u);
  EXPECT_EQ(ModeOf(AdminDir(dir_)), 0700u);
  EXPECT_EQ(AdminDir(dir_ + "/"), dir_ + "-admin");
}

TEST_F(SocketDirTest, TakesItsOwnOnceMoreAndKeepsAdminsToItself) {
  Make(AdminDir(dir_), 0755, geteuid());
  ASSERT_TRUE(Open().ok()) << Open();
  EXPECT_EQ(ModeOf(AdminDir(dir_)), 0700u);
}

TEST_F(SocketDirTest, RefusesAnAdminDirectoryOfAnotherUser) {
  NeedRoot();
  Make(AdminDir(dir_), 0700, 65533);
  const absl::Status status = Open();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr(AdminDir(dir_)));
  EXPECT_THAT(std::string(status.message()), HasSubstr("65533"));
  // By a link of one's own too.
  std::filesystem::rename(AdminDir(dir_), base_ + "/elsewhere");
  std::filesystem::create_symlink(base_ + "/elsewhere", AdminDir(dir_));
  EXPECT_THAT(std::string(Open().message()), HasSubstr("65533"));
}

TEST_F(SocketDirTest, RefusesAnAdminDirectoryThatAnotherUsersLinkLeadsTo) {
  NeedRoot();
  Make(base_ + "/elsewhere", 0700, geteuid());
  ASSERT_EQ(symlink((base_ + "/elsewhere").c_str(), AdminDir(dir_).c_str()), 0);
  ASSERT_EQ(lchown(AdminDir(dir_).c_str(), 65533, -1), 0);
  EXPECT_EQ(Open().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(SocketDirTest, RefusesAnAdminDirectoryThatOthersMayWriteTo) {
  for (const mode_t mode : {0770, 0707, 01777}) {
    Make(AdminDir(dir_), mode, geteuid());
    EXPECT_EQ(Open().code(), absl::StatusCode::kPermissionDenied) << std::oct << mode;
    rmdir(AdminDir(dir_).c_str());
  }
}

TEST_F(SocketDirTest, RefusesADirectoryWhoseSocketsOthersCouldReplace) {
  Make(dir_, 0777, geteuid());
  EXPECT_TRUE(Open().ok());
  struct stat now;
  ASSERT_EQ(stat(dir_.c_str(), &now), 0);
  EXPECT_EQ(now.st_mode & 07777, 01777u) << "sticky: only its owner replaces a file";
  NeedRoot();
  ASSERT_EQ(chmod(dir_.c_str(), 0755), 0);
  ASSERT_EQ(chown(dir_.c_str(), 65533, -1), 0);
  EXPECT_EQ(Open().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(SocketDirTest, SaysWhatToDoWhereItCannotMakeADirectory) {
  const auto refused = [](const std::string& dir) {
    const absl::Status status = SocketDir::Open({.dir = dir, .group = {}}).status();
    return std::string(status.message());
  };
  EXPECT_THAT(refused(base_ + "/missing/mrd"),
              AllOf(HasSubstr("make " + base_ + "/missing first"), HasSubstr("--socket-dir")));
  std::ofstream(base_ + "/file") << "in the way";
  EXPECT_THAT(refused(base_ + "/file"), HasSubstr("remove what is in the way"));
  std::filesystem::create_symlink("nowhere", base_ + "/link");
  EXPECT_THAT(refused(base_ + "/link"), HasSubstr("remove what is in the way"));
  EXPECT_THAT(refused("/proc/mrd"), HasSubstr("; give another directory with --socket-dir"));
}

TEST_F(SocketDirTest, SaysWhoseLockIsInTheWay) {
  NeedRoot();
  Make(dir_, 0755, geteuid());
  Make(AdminDir(dir_), 0700, geteuid());
  std::ofstream(dir_ + "/lock") << "1\n";
  ASSERT_EQ(chmod((dir_ + "/lock").c_str(), 0600), 0);
  ASSERT_EQ(chmod(base_.c_str(), 0755), 0);
  // Another user's daemon; root's rights would open any file.
  EXPECT_EXIT(
      {
        if (setuid(65533) != 0) _exit(1);
        const std::string message(Open().message());
        _exit(message.find("its lock belongs to uid 0") != std::string::npos ? 0 : 2);
      },
      testing::ExitedWithCode(0), "");
}

TEST_F(SocketDirTest, HoldsTheLockThatOthersWillFind) {
  Make(dir_, 0755, geteuid());
  // Between the open(2) and the flock(2) of this one another's start fails.
  before_flock = [this] { std::filesystem::remove(dir_ + "/lock"); };
  const auto sockets = SocketDir::Open({.dir = dir_, .group = {}});
  ASSERT_TRUE(sockets.ok()) << sockets.status();
  EXPECT_EQ(Open().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(SocketDirTest, LeavesNothingOfAFailedStart) {
  const auto left = [&] {
    return std::distance(std::filesystem::recursive_directory_iterator(base_), {});
  };
  std::ofstream(AdminDir(dir_)) << "in the way";
  EXPECT_FALSE(Open().ok());
  EXPECT_EQ(left(), 1);
  std::filesystem::remove(AdminDir(dir_));
  // With the lock held, since the path of a socket in it is too long.
  const std::string long_name = base_ + "/" + std::string(96 - base_.size(), 'd');
  EXPECT_FALSE(SocketDir::Open({.dir = long_name, .group = {}}).ok());
  EXPECT_EQ(left(), 0);
}

TEST_F(SocketDirTest, LeavesWhatWasThereBeforeAFailedStart) {
  Make(dir_, 0755, geteuid());
  std::ofstream(AdminDir(dir_)) << "in the way";
  EXPECT_FALSE(Open().ok());
  EXPECT_TRUE(std::filesystem::is_directory(dir_));
}

TEST_F(SocketDirTest, LeavesTheSocketsOfASuccessorAlone) {
  std::optional<SocketDir> first = *SocketDir::Open({.dir = dir_, .group = {}});
  std::filesystem::remove_all(dir_);
  std::filesystem::remove_all(AdminDir(dir_));
  std::optional<SocketDir> second = *SocketDir::Open({.dir = dir_, .group = {}});
  first.reset();
  for (const std::string& path :
       {dir_ + "/mrd.sock", dir_ + "/attach.sock", AdminDir(dir_) + "/attach.sock"}) {
    EXPECT_TRUE(std::filesystem::is_socket(path)) << path;
  }
  second.reset();
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/mrd.sock")) << "it removes its own";
}

TEST_F(SocketDirTest, TakesOverTheSocketsOfADaemonThatWasKilled) {
  ASSERT_TRUE(Open().ok());
  const UniqueFd old(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  strncpy(address.sun_path, (dir_ + "/mrd.sock").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(old.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(Open().ok()) << Open();
}

TEST_F(SocketDirTest, LeavesSocketsAloneThatSomebodyServesWithoutALock) {
  // As a service manager's socket units do.
  Make(dir_, 0755, geteuid());
  Make(AdminDir(dir_), 0700, geteuid());
  const std::string path = dir_ + "/mrd.sock";
  for (const int type : {SOCK_STREAM, SOCK_SEQPACKET}) {
    const UniqueFd served(socket(AF_UNIX, type, 0));
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(bind(served.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    ASSERT_EQ(listen(served.get(), 0), 0);
    // One that is full is served too.
    for (int i = 0; i < 2; ++i) {
      const absl::Status status = Open();
      EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("serves " + path), HasSubstr("systemctl stop mrd.socket")));
      if (type == SOCK_STREAM && i == 0) {
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr("another mrd (pid " + std::to_string(getpid()) + ")"));
      }
    }
    EXPECT_TRUE(std::filesystem::is_socket(path));
    EXPECT_FALSE(std::filesystem::exists(dir_ + "/attach.sock")) << "left of a failed start";
    unlink(path.c_str());
  }
  EXPECT_TRUE(Open().ok()) << Open();
}

TEST_F(SocketDirTest, RemovesNothingButASocketFromTheirPlaces) {
  ASSERT_TRUE(Open().ok());
  std::ofstream(dir_ + "/mrd.sock") << "precious";
  const std::string refusal(Open().message());
  EXPECT_THAT(refusal, AllOf(HasSubstr(dir_ + "/mrd.sock"), HasSubstr("move it elsewhere")));
  EXPECT_EQ(std::filesystem::file_size(dir_ + "/mrd.sock"), 8u);
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/attach.sock")) << "left of a failed start";
}

}  // namespace
}  // namespace mrd::ipc
