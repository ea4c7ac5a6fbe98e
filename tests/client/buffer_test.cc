// What a buffer is: sealed, populated, aligned, in the window; and gone when it is gone.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "absl/strings/str_format.h"
#include "client/address_window.h"
#include "client/available_memory.h"
#include "client/client.h"
#include "mrd/v1/status.h"
#include "tests/client/fake_daemon.h"

namespace mrd::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kHuge = 2 * 1024 * 1024;

class BufferTest : public ::testing::Test {
 protected:
  BufferTest() : client_(std::move(*Client::Attach({.socket_dir = daemon_.dir()}))) {}

  FakeDaemon daemon_;
  Client client_;
};

// Pages of the mapping that are present in this process.
uint64_t ResidentBytes(const Buffer& buffer) {
  std::vector<unsigned char> resident((buffer.mapped_size() + kPage - 1) / kPage);
  EXPECT_EQ(mincore(buffer.data(), buffer.mapped_size(), resident.data()), 0);
  uint64_t bytes = 0;
  for (const unsigned char page : resident) bytes += (page & 1) * kPage;
  return bytes;
}

uint64_t AllocatedBytes(int fd) {
  struct stat st = {};
  EXPECT_EQ(fstat(fd, &st), 0);
  return static_cast<uint64_t>(st.st_blocks) * 512;
}

TEST_F(BufferTest, IsSealedAndZeroedAndWholePages) {
  auto buffer = client_.CreateBuffer(kPage + 1);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->size(), kPage + 1);
  EXPECT_EQ(buffer->mapped_size(), 2 * kPage);
  EXPECT_EQ(buffer->page_size(), kPage);
  EXPECT_EQ(fcntl(buffer->fd(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_EQ(fcntl(buffer->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_EQ(fcntl(buffer->fd(), F_GETFL) & O_ACCMODE, O_RDWR);
  EXPECT_NE(ftruncate(buffer->fd(), 0), 0);
  const std::string zeros(2 * kPage, '\0');
  EXPECT_EQ(memcmp(buffer->data(), zeros.data(), zeros.size()), 0);
}

TEST_F(BufferTest, HasEveryPage) {
  auto buffer = client_.CreateBuffer(64 * kHuge);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(AllocatedBytes(buffer->fd()), 64 * kHuge);
  EXPECT_EQ(ResidentBytes(*buffer), 64 * kHuge);
}

TEST_F(BufferTest, IsWrittenThroughToItsObject) {
  auto buffer = client_.CreateBuffer(kPage);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  memcpy(buffer->data(), "shared", 6);
  char read_back[6];
  ASSERT_EQ(pread(buffer->fd(), read_back, 6, 0), 6);
  EXPECT_EQ(memcmp(read_back, "shared", 6), 0);
}

TEST_F(BufferTest, LiesInTheWindowAtChangingPlaces) {
  const internal::AddressWindow window = internal::WindowOfProgram();
  auto a = client_.CreateBuffer(kPage);
  auto b = client_.CreateBuffer(kPage);
  for (const auto* buffer : {&a, &b}) {
    ASSERT_TRUE(buffer->ok()) << buffer->status();
    EXPECT_GE((*buffer)->addr(), window.first);
    EXPECT_LE((*buffer)->addr() + kPage - 1, window.last);
  }
  // Not side by side: an overrun of one must not run into the other.
  EXPECT_GT(std::max(a->addr(), b->addr()) - std::min(a->addr(), b->addr()), 16 * kPage);
}

TEST_F(BufferTest, ForTransparentHugePagesIsAligned) {
  auto buffer = client_.CreateBuffer(3 * kHuge + 5, {.pages = Pages::kTransparentHuge});
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->addr() % kHuge, 0u);
  EXPECT_EQ(buffer->mapped_size(), 3 * kHuge + kPage);
  EXPECT_EQ(buffer->page_size(), kPage);
  EXPECT_GE(AllocatedBytes(buffer->fd()), 3 * kHuge + kPage);
}

// Huge pages of the pool; without any the error must say how to get them.
TEST_F(BufferTest, OfHugePagesIsThatOrSaysWhatIsMissing) {
  uint64_t free = 0;
  std::ifstream("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages") >> free;
  auto buffer = client_.CreateBuffer(kHuge + 1, {.pages = Pages::kHuge2M});
  if (free >= 2) {
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->addr() % kHuge, 0u);
    EXPECT_EQ(buffer->mapped_size(), 2 * kHuge);
    EXPECT_EQ(buffer->page_size(), kHuge);
    EXPECT_EQ(fcntl(buffer->fd(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    EXPECT_EQ(AllocatedBytes(buffer->fd()), 2 * kHuge);
  } else {
    ASSERT_FALSE(buffer.ok());
    EXPECT_EQ(buffer.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_EQ(DetailOf(buffer.status())->errno_name(), "ENOMEM") << buffer.status();
    EXPECT_THAT(std::string(buffer.status().message()), HasSubstr("2 MiB pages: 2 needed"));
    EXPECT_THAT(std::string(buffer.status().message()), HasSubstr("vm.nr_hugepages="));
  }
}

TEST_F(BufferTest, OfNoSizeIsRefused) {
  EXPECT_EQ(ReasonOf(client_.CreateBuffer(0).status()), v1::INVALID_LENGTH);
  EXPECT_EQ(ReasonOf(client_.CreateBuffer(SIZE_MAX).status()), v1::INVALID_LENGTH);
}

// Populating it would call the OOM killer. Larger than the window too, so that this test kills
// nobody where the code is wrong.
TEST_F(BufferTest, LargerThanMemoryIsRefusedBeforeItIsPopulated) {
  const absl::Status status = client_.CreateBuffer(uint64_t{1} << 46).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const auto detail = DetailOf(status);
  EXPECT_EQ(detail->errno_name(), "ENOMEM");
  EXPECT_THAT(detail->limit_name(), HasSubstr("memory"));
  EXPECT_GT(detail->limit(), detail->used());
  EXPECT_GT(detail->used(), 0u);
  EXPECT_THAT(std::string(status.message()), HasSubstr(detail->advice()));
}

TEST(AvailableMemory, IsReadFromTheKernelsText) {
  const std::string text =
      "MemTotal:       24000000 kB\nMemFree:  1 kB\nMemAvailable:   2000 kB\nSwapFree:  3 kB\n";
  EXPECT_EQ(internal::MeminfoBytes(text, "MemAvailable"), 2000u * 1024);
  EXPECT_EQ(internal::MeminfoBytes(text, "SwapFree"), 3u * 1024);
  EXPECT_EQ(internal::MeminfoBytes(text, "Mem"), 0u);
  EXPECT_GT(internal::TightestMemoryLimit().left(), 0u);
}

TEST_F(BufferTest, LeavesNothingBehind) {
  const int fds = CountFds();
  const int mappings = CountMappings();
  for (int i = 0; i < 200; ++i) {
    auto buffer = client_.CreateBuffer((i % 7 + 1) * kPage);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    Buffer moved = std::move(*buffer);
    EXPECT_EQ(CountMappings(), mappings + 1);
  }
  EXPECT_FALSE(client_.CreateBuffer(0).ok());
  EXPECT_EQ(CountFds(), fds);
  EXPECT_EQ(CountMappings(), mappings);
}

// A memfd of the caller's, as other code makes them.
int MakeMemfd(uint64_t size, unsigned flags = MFD_ALLOW_SEALING) {
  const int fd = memfd_create("mrd-foreign", MFD_CLOEXEC | flags);
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
  return fd;
}

TEST_F(BufferTest, MayBeTheCallersOwnMapping) {
  const int fd = MakeMemfd(4 * kPage);
  void* const addr = mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 2 * kPage);
  memcpy(addr, "mine", 4);
  {
    auto buffer = client_.AdoptBuffer(fd, addr, 2 * kPage, {.offset = 2 * kPage});
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->data(), addr);
    EXPECT_NE(buffer->fd(), fd);
    EXPECT_EQ(AllocatedBytes(fd), 2 * kPage);  // What is mapped, and no more.
    EXPECT_EQ(fcntl(fd, F_GET_SEALS), 0);      // Not asked for.
  }
  // Descriptor and mapping are still the caller's.
  EXPECT_NE(fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(memcmp(addr, "mine", 4), 0);
  munmap(addr, 2 * kPage);
  close(fd);
}

TEST_F(BufferTest, OfTheCallersIsMappedByTheLibrary) {
  const int fd = MakeMemfd(2 * kPage + 7);
  ASSERT_EQ(pwrite(fd, "mine", 4, kPage), 4);
  const int mappings = CountMappings();
  {
    auto buffer = client_.AdoptBuffer(fd, {.offset = kPage, .seal = true});
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size(), kPage + 7);
    EXPECT_EQ(buffer->mapped_size(), 2 * kPage);
    EXPECT_GE(buffer->addr(), internal::WindowOfProgram().first);
    EXPECT_LE(buffer->addr(), internal::WindowOfProgram().last);
    EXPECT_EQ(memcmp(buffer->data(), "mine", 4), 0);  // Populating did not clear it.
    EXPECT_EQ(ResidentBytes(*buffer), 2 * kPage);
    EXPECT_EQ(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK);
  }
  EXPECT_EQ(CountMappings(), mappings);
  close(fd);
}

TEST_F(BufferTest, OfTheCallersIsRefusedWithTheReason) {
  const int fds = CountFds();
  {
    const internal::UniqueFd empty(MakeMemfd(0));
    EXPECT_EQ(ReasonOf(client_.AdoptBuffer(empty.get()).status()), v1::INVALID_LENGTH);
    const internal::UniqueFd fd(MakeMemfd(kPage));
    EXPECT_EQ(ReasonOf(client_.AdoptBuffer(fd.get(), {.offset = kPage}).status()),
              v1::INVALID_LENGTH);
    EXPECT_EQ(
        ReasonOf(client_.AdoptBuffer(fd.get(), reinterpret_cast<void*>(4097), kPage).status()),
        v1::MISALIGNED);
    for (const absl::Status& odd :
         {client_.AdoptBuffer(fd.get(), {.offset = 1}).status(),
          client_.AdoptBuffer(fd.get(), nullptr, kPage, {.offset = 1}).status()}) {
      EXPECT_EQ(ReasonOf(odd), v1::MISALIGNED) << odd;
      EXPECT_THAT(std::string(odd.message()), HasSubstr("multiple of its page size 4096"));
    }
    const absl::Status closed = client_.AdoptBuffer(-1).status();
    EXPECT_EQ(closed.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(DetailOf(closed)->advice(), "");
    const absl::Status at_null = client_.AdoptBuffer(fd.get(), nullptr, kPage).status();
    EXPECT_EQ(at_null.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(at_null.message()), HasSubstr("address null"));
    for (const char* file : {"/dev/zero", "/proc/self/exe"}) {
      const internal::UniqueFd other(open(file, O_RDONLY | O_CLOEXEC));
      EXPECT_EQ(ReasonOf(client_.AdoptBuffer(other.get()).status()), v1::NOT_SHARED_MEMORY);
    }
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const internal::UniqueFd reads(ends[0]), writes(ends[1]);
    const absl::Status pipe = client_.AdoptBuffer(reads.get(), &ends, kPage).status();
    EXPECT_EQ(ReasonOf(pipe), v1::NOT_SHARED_MEMORY);
    EXPECT_THAT(std::string(pipe.message()), HasSubstr("pipe:"));
    // A mapping that reaches beyond the end of its object.
    void* const addr = mmap(nullptr, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    EXPECT_EQ(DetailOf(client_.AdoptBuffer(fd.get(), addr, 2 * kPage).status())->errno_name(),
              "EFAULT");
    munmap(addr, 2 * kPage);
  }
  EXPECT_EQ(CountFds(), fds);
}

// Far from where the kernel puts what asks for no address; ThreadSanitizer has less room.
#ifdef __SANITIZE_THREAD__
void* const kOutOfTheWay = reinterpret_cast<void*>(0x7e7000000000);
#else
void* const kOutOfTheWay = reinterpret_cast<void*>(0x640000000000);
#endif

class Mapped {
 public:
  Mapped(int fd, uint64_t size, int flags, uint64_t offset = 0, void* hint = nullptr)
      : size_(size) {
    addr_ = mmap(hint, size, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset));
    EXPECT_NE(addr_, MAP_FAILED);
  }
  ~Mapped() { munmap(addr_, size_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  char* get() const { return static_cast<char*>(addr_); }

 private:
  void* addr_;
  uint64_t size_;
};

// Peers would write pages that this process never sees.
TEST_F(BufferTest, OfTheCallersIsAMappingOfTheDescriptor) {
  const internal::UniqueFd fd(MakeMemfd(4 * kPage));
  const internal::UniqueFd other(MakeMemfd(4 * kPage));
  const auto refusal = [&](void* addr, uint64_t size, uint64_t offset = 0) {
    const absl::Status status =
        client_.AdoptBuffer(fd.get(), addr, size, {.offset = offset}).status();
    EXPECT_EQ(ReasonOf(status), v1::ADDRESS_UNUSABLE) << status;
    return std::string(status.message());
  };
  const char kNotShared[] = "is not a shared mapping of this descriptor";
  const Mapped heap(-1, 2 * kPage, MAP_PRIVATE | MAP_ANONYMOUS);
  EXPECT_THAT(refusal(heap.get(), kPage), HasSubstr(kNotShared));
  const Mapped anonymous(-1, 2 * kPage, MAP_SHARED | MAP_ANONYMOUS);
  EXPECT_THAT(refusal(anonymous.get(), kPage), HasSubstr(kNotShared));
  const Mapped copied(fd.get(), 2 * kPage, MAP_PRIVATE);
  EXPECT_THAT(refusal(copied.get(), kPage), HasSubstr(kNotShared));
  const Mapped of_other(other.get(), 2 * kPage, MAP_SHARED);
  EXPECT_THAT(refusal(of_other.get(), kPage), HasSubstr(kNotShared));
  const Mapped second_page(fd.get(), kPage, MAP_SHARED, kPage);
  EXPECT_THAT(refusal(second_page.get(), kPage), HasSubstr("from offset 4096, not 0"));
  // A hole after two pages, where the kernel puts nothing of other threads by itself.
  const Mapped room(fd.get(), 4 * kPage, MAP_SHARED, 0, kOutOfTheWay);
  ASSERT_EQ(munmap(room.get() + 2 * kPage, 2 * kPage), 0);
  EXPECT_THAT(refusal(room.get(), 3 * kPage), HasSubstr("nothing is mapped at 0x"));
  auto* const gone = room.get() + 2 * kPage;
  EXPECT_THAT(refusal(gone, kPage), HasSubstr(absl::StrFormat("nothing is mapped at %p", gone)));
  EXPECT_EQ(ReasonOf(client_.AdoptBuffer(fd.get(), room.get(), SIZE_MAX).status()),
            v1::INVALID_LENGTH);
}

TEST_F(BufferTest, OfTheCallersMayBeSeveralAreasOfTheKernels) {
  const internal::UniqueFd fd(MakeMemfd(4 * kPage));
  const Mapped all(fd.get(), 4 * kPage, MAP_SHARED);
  const int mappings = CountMappings();
  ASSERT_EQ(madvise(all.get() + kPage, kPage, MADV_DONTFORK), 0);
  ASSERT_EQ(CountMappings(), mappings + 2);
  EXPECT_TRUE(client_.AdoptBuffer(fd.get(), all.get(), 4 * kPage).ok());
  EXPECT_TRUE(client_.AdoptBuffer(fd.get(), all.get() + kPage, 2 * kPage, {.offset = kPage}).ok());
}

TEST_F(BufferTest, OfTheCallersThatCannotBeWrittenSaysWhy) {
  const auto refusal = [&](int fd) {
    const absl::Status status = client_.AdoptBuffer(fd).status();
    EXPECT_EQ(ReasonOf(status), v1::BUFFER_READ_ONLY) << status;
    return std::string(status.message());
  };
  const internal::UniqueFd fd(MakeMemfd(kPage));
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  const internal::UniqueFd reader(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_THAT(refusal(reader.get()), HasSubstr("not open for reading and writing"));
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
  EXPECT_THAT(refusal(fd.get()), HasSubstr("(F_SEAL_FUTURE_WRITE)"));
  const internal::UniqueFd sealed(MakeMemfd(kPage));
  ASSERT_EQ(fcntl(sealed.get(), F_ADD_SEALS, F_SEAL_WRITE), 0);
  EXPECT_THAT(refusal(sealed.get()), HasSubstr("(F_SEAL_WRITE)"));
}

TEST_F(BufferTest, HasANameOfAtMost249Bytes) {
  EXPECT_TRUE(client_.CreateBuffer(kPage, {.name = std::string(249, 'n').c_str()}).ok());
  const absl::Status status =
      client_.CreateBuffer(kPage, {.name = std::string(250, 'n').c_str()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailOf(status)->limit(), 249u);
  EXPECT_TRUE(client_.CreateBuffer(kPage, {.name = nullptr}).ok());
}

TEST_F(BufferTest, ThatCannotBeSealedSaysSo) {
  const internal::UniqueFd fd(MakeMemfd(kPage, 0));
  const absl::Status status = client_.AdoptBuffer(fd.get(), {.seal = true}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("MFD_ALLOW_SEALING"));
}

}  // namespace
}  // namespace mrd::testing
