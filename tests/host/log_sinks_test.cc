#include "daemon/host/log_sinks.h"

#include <gmock/gmock.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <map>
#include <memory>

#include "daemon/log.h"
#include "daemon/unique_fd.h"
#include "spdlog/spdlog.h"

namespace mrd::host {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

// One entry of the journal's protocol: lines KEY=value.
std::multimap<std::string, std::string> Parse(const std::string& datagram) {
  std::multimap<std::string, std::string> entry;
  for (size_t begin = 0; begin < datagram.size();) {
    const size_t end = datagram.find('\n', begin);
    const std::string line = datagram.substr(begin, end - begin);
    const size_t equals = line.find('=');
    entry.emplace(line.substr(0, equals),
                  equals == std::string::npos ? "" : line.substr(equals + 1));
    begin = end == std::string::npos ? datagram.size() : end + 1;
  }
  return entry;
}

void Require(bool holds, const char* what) {
  if (holds) return;
  perror(what);
  _exit(3);
}

// The journal's socket, in a /run of this process' own.
class Journal {
 public:
  Journal() {
    if (geteuid() != 0) Require(unshare(CLONE_NEWUSER) == 0, "unshare a user namespace");
    Require(unshare(CLONE_NEWNS) == 0, "unshare a mount namespace");
    Require(mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "mount");
    Require(mount("none", "/run", "tmpfs", 0, nullptr) == 0, "mount a tmpfs");
    Require(mkdir("/run/systemd", 0755) == 0 && mkdir("/run/systemd/journal", 0755) == 0, "mkdir");
    socket_.reset(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strcpy(address.sun_path, "/run/systemd/journal/socket");
    Require(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
            "bind");
  }

  std::multimap<std::string, std::string> Next() {
    char bytes[65536];
    const ssize_t length = recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    return length < 0 ? std::multimap<std::string, std::string>() : Parse({bytes, size_t(length)});
  }

 private:
  UniqueFd socket_;
};

// In a process of its own: the namespace and the logger are its.
void InChild(const std::function<void(Journal&)>& test) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Journal journal;
    auto logger = std::make_shared<spdlog::logger>("mrd", MakeJournalSink());
    logger->set_level(spdlog::level::debug);
    spdlog::set_default_logger(logger);
    test(journal);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST(JournalSinkTest, AnEntryHasMessagePriorityAndFields) {
  InChild([](Journal& journal) {
    log::Write(spdlog::level::warn, "Register refused",
               log::Fields()
                   .Session(12)
                   .Uid(1000)
                   .Pid(44)
                   .Device("mlx5_0")
                   .Lease(7)
                   .Reason("QUOTA_BYTES")
                   .Errno(12));
    EXPECT_THAT(
        journal.Next(),
        AllOf(Contains(Pair("MESSAGE",
                            "Register refused  session=12 uid=1000 pid=44 device=mlx5_0 lease=7 "
                            "reason=QUOTA_BYTES errno=ENOMEM")),
              Contains(Pair("PRIORITY", "4")), Contains(Pair("MRD_SESSION", "12")),
              Contains(Pair("MRD_UID", "1000")), Contains(Pair("MRD_PID", "44")),
              Contains(Pair("MRD_DEVICE", "mlx5_0")), Contains(Pair("MRD_LEASE", "7")),
              Contains(Pair("MRD_REASON", "QUOTA_BYTES")), Contains(Pair("ERRNO", "12"))));
  });
}

TEST(JournalSinkTest, LevelsHaveTheirPriorities) {
  InChild([](Journal& journal) {
    const std::pair<spdlog::level::level_enum, const char*> levels[] = {
        {spdlog::level::critical, "2"}, {spdlog::level::err, "3"},   {spdlog::level::warn, "4"},
        {spdlog::level::info, "6"},     {spdlog::level::debug, "7"},
    };
    for (const auto& [level, priority] : levels) {
      log::Write(level, "x", {});
      EXPECT_THAT(journal.Next(), Contains(Pair("PRIORITY", priority)));
    }
  });
}

TEST(JournalSinkTest, ALineWithoutFieldsHasNoneOfTheOneBefore) {
  InChild([](Journal& journal) {
    log::Write(spdlog::level::info, "one", log::Fields().Session(12));
    spdlog::info("ready: {}", 1);
    EXPECT_THAT(journal.Next(), Contains(Pair("MRD_SESSION", "12")));
    EXPECT_THAT(journal.Next(), AllOf(Contains(Pair("MESSAGE", "ready: 1")),
                                      Not(Contains(Pair("MRD_SESSION", testing::_)))));
  });
}

TEST(JournalSinkTest, AClientCannotMakeAFieldOrAnEntry) {
  InChild([](Journal& journal) {
    log::Write(spdlog::level::info, "name\nMRD_UID=0\nPRIORITY=0",
               log::Fields().Device("x\nMRD_SESSION=1"));
    EXPECT_THAT(journal.Next(), AllOf(Not(Contains(Pair("MRD_UID", testing::_))),
                                      Not(Contains(Pair("MRD_SESSION", testing::_))),
                                      Contains(Pair("MRD_DEVICE", "x\\nMRD_SESSION=1"))));
    EXPECT_TRUE(journal.Next().empty());
  });
}

TEST(StderrIsJournalTest, OnlyWhereTheVariableNamesStandardError) {
  struct stat found;
  ASSERT_EQ(fstat(STDERR_FILENO, &found), 0);
  const std::string here = std::to_string(found.st_dev) + ":" + std::to_string(found.st_ino);
  unsetenv("JOURNAL_STREAM");
  EXPECT_FALSE(StderrIsJournal());
  setenv("JOURNAL_STREAM", here.c_str(), 1);
  EXPECT_TRUE(StderrIsJournal());
  for (const std::string& other : {here + "0", here + "x", std::string("x"), std::string("")}) {
    setenv("JOURNAL_STREAM", other.c_str(), 1);
    EXPECT_FALSE(StderrIsJournal()) << other;
  }
  unsetenv("JOURNAL_STREAM");
}

TEST(TextSinkTest, ALineHasTimeLevelTextAndFields) {
  testing::internal::CaptureStderr();
  auto logger = std::make_shared<spdlog::logger>("mrd", MakeTextSink());
  const auto before = spdlog::default_logger();
  spdlog::set_default_logger(logger);
  log::Write(spdlog::level::warn, "a\nb", log::Fields().Session(3));
  spdlog::set_default_logger(before);
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::MatchesRegex("[0-9-]+T[0-9:.]+ warning a.nb  session=3\n")) << text;
  EXPECT_THAT(text, HasSubstr("a\\nb"));
}

}  // namespace
}  // namespace mrd::host
