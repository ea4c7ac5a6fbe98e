// Registrations of descriptors that are not what they should be. S18 (bad_fds_test) throws
// thousands of them; here each gets its reason.
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

class BuffersTest : public RefusalTest<EachFabricTest> {
 protected:
  Answer<v1::RegisterResponse> RefusedFd(RawClient& client, int fd, v1::Reason reason,
                                         uint64_t length = kPage) {
    return Refused(client, RequestFor(Pass(client, fd), 0x10000000, length), reason);
  }
};
MRD_ON_EACH_FABRIC(BuffersTest);

TEST_P(BuffersTest, NotSharedMemory) {
  StartThis();
  RawClient client(dir());
  int pipes[2];
  ASSERT_EQ(pipe2(pipes, O_CLOEXEC), 0);
  const UniqueFd pipe_in(pipes[0]);
  const UniqueFd pipe_out(pipes[1]);
  const UniqueFd socket_fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const UniqueFd epoll_fd(epoll_create1(EPOLL_CLOEXEC));
  const UniqueFd event_fd(eventfd(0, EFD_CLOEXEC));
  const UniqueFd zero(open("/dev/zero", O_RDWR | O_CLOEXEC));
  const UniqueFd directory(open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd shm_directory(open("/dev/shm", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const UniqueFd proc(open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  const std::string path = daemon().base() + "/file";
  const UniqueFd disk(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(disk.get(), kPage), 0);
  const struct {
    const char* said;  // What it is, in the refusal's words.
    int fd;
  } kinds[] = {
      {"pipe", pipe_in.get()},        {"pipe", pipe_out.get()},       {"socket", socket_fd.get()},
      {"anon_inode", epoll_fd.get()}, {"anon_inode", event_fd.get()}, {"device file", zero.get()},
      {"directory", directory.get()}, {"file", proc.get()},
  };
  for (const auto& kind : kinds) {
    SCOPED_TRACE(kind.said);
    const auto answer = RefusedFd(client, kind.fd, v1::NOT_SHARED_MEMORY);
    EXPECT_NE(answer.status.error_message().find(kind.said), std::string::npos) << answer.text();
    EXPECT_EQ(answer.detail.errno_name(), "EINVAL");
  }
  RefusedFd(client, shm_directory.get(), v1::NOT_SHARED_MEMORY);
  // A file on a disk cannot be pinned for long; in a tmpfs it is shared memory that has no seals.
  struct stat where;
  ASSERT_EQ(fstat(disk.get(), &where), 0);
  RefusedFd(client, disk.get(),
            fcntl(disk.get(), F_GET_SEALS) < 0 ? v1::NOT_SHARED_MEMORY : v1::NOT_SEALED);
}

TEST_P(BuffersTest, AnOPathDescriptorIsNamedAsSuch) {
  StartThis();
  RawClient client(dir());
  const Memory memory(kPage);
  const std::string path = "/proc/self/fd/" + std::to_string(memory.fd());
  const UniqueFd o_path(open(path.c_str(), O_PATH | O_CLOEXEC));
  ASSERT_TRUE(o_path);
  const auto answer = RefusedFd(client, o_path.get(), v1::NOT_SHARED_MEMORY);
  EXPECT_NE(answer.status.error_message().find("O_PATH"), std::string::npos) << answer.text();
  EXPECT_EQ(answer.detail.errno_name(), "EBADF");
}

TEST_P(BuffersTest, NotSealedAndSealedAfterwardsIsGood) {
  StartThis();
  RawClient client(dir());
  const Memory memory(kPage, {.sealed = false});
  const auto request = RequestFor(Pass(client, memory.fd()), memory);
  Refused(client, request, v1::NOT_SEALED);
  ASSERT_EQ(fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const auto answer = client.Register(request);
  EXPECT_TRUE(answer.ok()) << answer.text();
}

TEST_P(BuffersTest, PosixShmCannotBeSealedAndNeedsTheOperatorsWord) {
  StartThis();
  RawClient client(dir());
  const std::string name = "/mrd-test-" + std::to_string(getpid());
  const UniqueFd shm(shm_open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  shm_unlink(name.c_str());
  ASSERT_TRUE(shm);
  Fill(shm.get(), kPage);
  const auto answer = RefusedFd(client, shm.get(), v1::NOT_SEALED);
  EXPECT_NE(answer.detail.advice().find("operator"), std::string::npos) << answer.text();

  const DaemonProcess lenient({.fabric = GetParam(), .set = "unsealed=1"});
  RawClient other(lenient.dir());
  const auto taken = other.Register(RequestFor(other.PassFd(shm.get()), 0x10000000, kPage));
  EXPECT_TRUE(taken.ok()) << taken.text();
}

TEST_P(BuffersTest, NotPopulatedNamesTheFirstAbsentPage) {
  StartThis();
  RawClient client(dir());
  const Memory memory(16 * kPage, {.populated = false});
  const uint64_t id = Pass(client, memory.fd());
  Refused(client, RequestFor(id, memory), v1::NOT_POPULATED);
  // All but one page of it.
  for (int page = 0; page < 16; ++page) {
    if (page != 11) memory.data()[page * kPage] = 1;
  }
  const auto answer = Refused(client, RequestFor(id, memory), v1::NOT_POPULATED);
  EXPECT_NE(answer.status.error_message().find(std::to_string(11 * kPage)), std::string::npos)
      << answer.text();
  // Ranges beside it are good.
  EXPECT_TRUE(client.Register(RequestFor(id, memory.addr(), 11 * kPage)).ok());
  EXPECT_TRUE(
      client.Register(RequestFor(id, memory.addr() + 12 * kPage, 4 * kPage, 12 * kPage)).ok());
  memory.data()[11 * kPage] = 1;
  EXPECT_TRUE(client.Register(RequestFor(id, memory)).ok());
}

TEST_P(BuffersTest, ARefusalForAbsentPagesMakesNone) {
  StartThis();
  RawClient client(dir());
  const Memory memory(64 * kPage, {.populated = false});
  memory.data()[0] = 1;
  const uint64_t id = Pass(client, memory.fd());
  Refused(client, RequestFor(id, memory), v1::NOT_POPULATED);
  EXPECT_TRUE(client.Register(RequestFor(id, memory.addr(), kPage)).ok());
  struct stat now;
  ASSERT_EQ(fstat(memory.fd(), &now), 0);
  EXPECT_EQ(now.st_blocks * 512, static_cast<int64_t>(kPage));
}

TEST_P(BuffersTest, TheClientsFileOffsetIsLeftAlone) {
  StartThis();
  RawClient client(dir());
  const Memory memory(4 * kPage);
  ASSERT_EQ(lseek(memory.fd(), 12345, SEEK_SET), 12345);
  client.RegisterAll(memory);
  EXPECT_EQ(lseek(memory.fd(), 0, SEEK_CUR), 12345);
}

TEST_P(BuffersTest, HugePagesThatAreNotThereAreNotPopulated) {
  StartThis();
  RawClient client(dir());
  const UniqueFd huge(memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!huge) GTEST_SKIP() << "no hugetlb in this kernel";
  ASSERT_EQ(ftruncate(huge.get(), 2 << 20), 0);
  ASSERT_EQ(fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const auto request = RequestFor(Pass(client, huge.get()), 0x40000000, 2 << 20);
  Refused(client, request, v1::NOT_POPULATED);
}

TEST_P(BuffersTest, BufferReadOnly) {
  StartThis();
  RawClient client(dir());
  const Memory memory(kPage);
  const std::string path = "/proc/self/fd/" + std::to_string(memory.fd());
  const UniqueFd read_only(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const UniqueFd write_only(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(read_only && write_only);
  RefusedFd(client, read_only.get(), v1::BUFFER_READ_ONLY);
  RefusedFd(client, write_only.get(), v1::BUFFER_READ_ONLY);
  for (const int seal : {F_SEAL_WRITE, F_SEAL_FUTURE_WRITE}) {
    const UniqueFd sealed(memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    Fill(sealed.get(), kPage);
    ASSERT_EQ(fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_SHRINK | seal), 0);
    RefusedFd(client, sealed.get(), v1::BUFFER_READ_ONLY);
  }
}

TEST_P(BuffersTest, AnEmptyOrTooShortBufferIsOutOfRangeUntilItGrows) {
  StartThis();
  RawClient client(dir());
  const UniqueFd empty(memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(fcntl(empty.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  const auto request = RequestFor(Pass(client, empty.get()), 0x10000000, 2 * kPage);
  ExpectLimit(Refused(client, request, v1::OUT_OF_RANGE), "bytes of the buffer", 0, 0);
  Fill(empty.get(), kPage);
  ExpectLimit(Refused(client, request, v1::OUT_OF_RANGE), "bytes of the buffer", kPage, 0);
  Fill(empty.get(), 2 * kPage);
  EXPECT_TRUE(client.Register(request).ok());
}

TEST_P(BuffersTest, AGoodBufferBesideABadOneIsNotRegisteredAlone) {
  StartThis();
  RawClient client(dir());
  const Memory good(kPage);
  const UniqueFd bad(epoll_create1(EPOLL_CLOEXEC));
  auto request = RequestFor(Pass(client, good.fd()), good);
  AddRange(&request, Pass(client, bad.get()), 0x10000000, kPage);
  Refused(client, request, v1::NOT_SHARED_MEMORY);
}

}  // namespace
}  // namespace mrd::e2e
