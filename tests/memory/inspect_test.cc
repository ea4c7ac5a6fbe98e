#include "daemon/memory/inspect.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "mrd/v1/status.h"
#include "tests/memory/memfd.h"
#include "tests/memory/stalled_call.h"

namespace mrd::memory {
namespace {

void ExpectRefused(int fd, const char* word) {
  const auto facts = Inspect(fd);
  ASSERT_FALSE(facts.ok()) << word;
  EXPECT_EQ(ReasonOf(facts.status()), v1::NOT_SHARED_MEMORY);
  EXPECT_NE(facts.status().message().find(word), absl::string_view::npos) << facts.status();
}

TEST(Inspect, TellsAMemfd) {
  const UniqueFd fd = MakeMemfd(8192);
  const auto facts = Inspect(fd.get());
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->kind, Kind::kShmem);
  EXPECT_EQ(facts->size, 8192u);
  EXPECT_EQ(facts->page_size, 4096u);
  EXPECT_TRUE(facts->writable);
  EXPECT_NE(facts->seals & F_SEAL_SHRINK, 0);
}

TEST(Inspect, TellsThatADescriptorIsReadOnly) {
  const UniqueFd fd = MakeMemfd(4096);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd.get());
  const UniqueFd read_only(open(path, O_RDONLY | O_CLOEXEC));
  const auto facts = Inspect(read_only.get());
  ASSERT_TRUE(facts.ok());
  EXPECT_FALSE(facts->writable);
}

TEST(Inspect, RefusesWhatIsNotSharedMemoryAndSaysWhatItIs) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd pipe_read(ends[0]), pipe_write(ends[1]);
  ExpectRefused(pipe_read.get(), "a pipe");
  const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ExpectRefused(socket.get(), "a socket");
  const UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  ExpectRefused(epoll.get(), "anon_inode");
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  ExpectRefused(event.get(), "anon_inode");
  const UniqueFd directory(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ExpectRefused(directory.get(), "another file system");
  const UniqueFd device(open("/dev/null", O_RDWR | O_CLOEXEC));
  ExpectRefused(device.get(), "a device file");
  const UniqueFd tmpfs_directory(open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_TRUE(tmpfs_directory);
  EXPECT_FALSE(Inspect(tmpfs_directory.get()).ok());
}

TEST(Inspect, RefusesAPathDescriptor) {
  const UniqueFd fd = MakeMemfd(4096);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd.get());
  const UniqueFd path_only(open(path, O_PATH | O_CLOEXEC));
  ExpectRefused(path_only.get(), "O_PATH");
  EXPECT_EQ(DetailOf(Inspect(path_only.get()).status())->errno_name(), "EBADF");
}

// S18: its fdinfo waits for a lock that a client can hold for ever.
TEST(Inspect, WaitsForNoLockOfAnEpolls) {
  const UniqueFd epoll_fd(epoll_create1(EPOLL_CLOEXEC));
  const UniqueFd ready(eventfd(1, EFD_CLOEXEC));
  epoll_event event{EPOLLIN, {}};
  ASSERT_EQ(epoll_ctl(epoll_fd.get(), EPOLL_CTL_ADD, ready.get(), &event), 0);
  const StalledCall wait(
      [&](void* page) { epoll_wait(epoll_fd.get(), static_cast<epoll_event*>(page), 1, -1); });
  ASSERT_TRUE(wait.waits());
  EXPECT_EQ(ReasonOf(Inspect(epoll_fd.get()).status()), v1::NOT_SHARED_MEMORY);
}

}  // namespace
}  // namespace mrd::memory
