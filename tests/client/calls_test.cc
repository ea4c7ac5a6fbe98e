// The library's calls against services that refuse, break off, and are late.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "client/client.h"
#include "mrd/v1/status.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/fake_services.h"

namespace mrd::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// What a call sees whose connection broke: no reason, and nobody knows whether it was done.
const absl::Status kBroken = absl::UnavailableError("Socket closed");
const absl::Status kBusy = MakeError(v1::BUSY, "busy", {.advice = "Later."});

class Calls : public ::testing::Test {
 protected:
  Client Attach(milliseconds call_timeout = std::chrono::seconds(30)) {
    auto client = Client::Attach({.socket_dir = daemon_.dir(), .call_timeout = call_timeout});
    EXPECT_TRUE(client.ok()) << client.status();
    return std::move(*client);
  }

  // Ids and inodes of all the buffers that were passed.
  std::vector<std::pair<uint64_t, ino_t>> passed() {
    std::lock_guard lock(mutex_);
    return passed_;
  }
  std::vector<size_t> packets() {
    std::lock_guard lock(mutex_);
    return packets_;
  }

  std::mutex reading_;  // Held: the daemon reads nothing but the hello.

 private:
  void Serve(int socket) {
    FakeDaemon::Welcome(socket);
    for (;;) {
      pollfd waits = {socket, POLLIN, 0};
      poll(&waits, 1, -1);
      std::lock_guard read(reading_);
      const ClientSaid said = FakeDaemon::Receive(socket);
      if (said.hung_up) return;
      const auto& ids = said.packet.pass_buffers().buffer_ids();
      EXPECT_EQ(static_cast<size_t>(ids.size()), said.fds.size());
      std::lock_guard lock(mutex_);
      packets_.push_back(said.fds.size());
      for (size_t i = 0; i < said.fds.size(); ++i) {
        struct stat st = {};
        fstat(said.fds[i].get(), &st);
        passed_.emplace_back(ids[static_cast<int>(i)], st.st_ino);
      }
    }
  }

  std::mutex mutex_;  // Guards the next two.
  std::vector<std::pair<uint64_t, ino_t>> passed_;
  std::vector<size_t> packets_;
  FakeDaemon daemon_{[this](int socket) { Serve(socket); }};

 protected:
  FakeServices services_{daemon_.dir()};
};

// The fake daemon reads its attach socket whenever its thread runs.
#define EXPECT_SOON(condition)                                    \
  do {                                                            \
    for (int i = 0; i < 2000 && !(condition); ++i) usleep(5'000); \
    EXPECT_TRUE(condition);                                       \
  } while (false)

TEST_F(Calls, CarryTheToken) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegMsgs(*buffer);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_TRUE(region->Deregister().ok());
  EXPECT_EQ(services_.tokens().size(), 2u);
  EXPECT_THAT(services_.tokens(), Each("0123456789abcdef"));
}

TEST_F(Calls, RegisterSaysWhatTheCallerMeans) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(3 * 4096);
  const Range ranges[] = {{*buffer, 4096, 100}, {*buffer, 0, 4096}};
  auto regions = client.Register(
      {.devices = {"a", "b"}, .preset = v1::Access::REG_READ, .flags = {v1::REMOTE_ATOMIC}},
      ranges);
  ASSERT_TRUE(regions.ok()) << regions.status();
  const v1::RegisterRequest request = services_.registers().at(0);
  EXPECT_THAT(request.devices(), ElementsAre("a", "b"));
  EXPECT_EQ(request.access().preset(), v1::Access::REG_READ);
  EXPECT_THAT(request.access().flags(), ElementsAre(v1::REMOTE_ATOMIC));
  EXPECT_EQ(request.ranges(0).offset(), 4096u);
  EXPECT_EQ(request.ranges(0).length(), 100u);
  EXPECT_EQ(request.ranges(0).addr(), buffer->addr() + 4096);
  EXPECT_EQ(request.ranges(1).buffer_id(), request.ranges(0).buffer_id());
  EXPECT_EQ((*regions)[0].addr(), buffer->addr() + 4096);
  EXPECT_EQ((*regions)[1].lease_id(), 101u);
  EXPECT_EQ((*regions)[1].rkey(), 2u);
  EXPECT_EQ((*regions)[1].key("fake0")->generation, 1u);
  EXPECT_EQ((*regions)[1].key("other"), std::nullopt);
}

TEST_F(Calls, AreRepeatedWhileTheDaemonIsBusy) {
  services_.on_register = [](int n, const auto& request, auto* response) {
    return n <= 3 ? kBusy : GrantAll(n, request, response);
  };
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  EXPECT_TRUE(client.RegMsgs(*buffer).ok());
  EXPECT_EQ(services_.registers().size(), 4u);
}

TEST_F(Calls, StayBusyNoLongerThanTheirTimeout) {
  services_.on_register = [](int, const auto&, auto*) { return kBusy; };
  Client client = Attach(milliseconds(2000));
  auto buffer = client.CreateBuffer(4096);
  const auto start = Clock::now();
  const absl::Status status = client.RegMsgs(*buffer).status();
  EXPECT_EQ(ReasonOf(status), v1::BUSY) << status;
  EXPECT_GE(Clock::now() - start, milliseconds(1700));
  EXPECT_LT(Clock::now() - start, milliseconds(10000));
  // Pauses grow: not one try a millisecond.
  EXPECT_LT(services_.registers().size(), 40u);
}

TEST_F(Calls, S07_RegisterIsRepeatedUnderOneRequestId) {
  services_.on_register = [](int n, const auto& request, auto* response) {
    return n == 1 ? kBroken : GrantAll(n, request, response);
  };
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto first = client.RegMsgs(*buffer);
  auto second = client.RegMsgs(*buffer);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  const auto requests = services_.registers();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_NE(requests[0].request_id(), "");
  EXPECT_EQ(requests[0].request_id(), requests[1].request_id());
  EXPECT_NE(requests[1].request_id(), requests[2].request_id());
}

TEST_F(Calls, RefusalsAreNotRepeatedAndKeepTheirDetail) {
  services_.on_register = [](int, const auto&, auto*) {
    return MakeError(v1::MEMLOCK, "cannot lock",
                     {.errno_value = ENOMEM,
                      .limit_name = "RLIMIT_MEMLOCK",
                      .limit = 65536,
                      .used = 4096,
                      .advice = "Give it CAP_IPC_LOCK."});
  };
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  const absl::Status status = client.RegMsgs(*buffer).status();
  EXPECT_EQ(services_.registers().size(), 1u);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("CAP_IPC_LOCK"));
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->reason(), v1::MEMLOCK);
  EXPECT_EQ(detail->errno_name(), "ENOMEM");
  EXPECT_EQ(detail->limit_name(), "RLIMIT_MEMLOCK");
  EXPECT_EQ(detail->limit(), 65536u);
  EXPECT_EQ(detail->used(), 4096u);
}

TEST_F(Calls, AreGivenUpAtTheirDeadline) {
  services_.on_register = [](int, const auto&, auto*) {
    usleep(1'000'000);
    return absl::OkStatus();
  };
  Client client = Attach(milliseconds(200));
  auto buffer = client.CreateBuffer(4096);
  const absl::Status status = client.RegMsgs(*buffer).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("200 ms"));
}

TEST_F(Calls, DeregisterTakesUnknownForDoneOnlyInARepeat) {
  services_.on_deregister = [](int n, const auto&) {
    return n == 1 ? kBroken : MakeError(v1::LEASE_UNKNOWN, "no such lease");
  };
  Client client = Attach();
  auto buffer = client.CreateBuffer(3 * 4096);
  const Range range(*buffer);
  auto regions = client.Register({}, std::vector<Range>{range, range, range});
  ASSERT_TRUE(regions.ok()) << regions.status();
  EXPECT_TRUE(client.Deregister(*regions).ok());
  // Both tries of all three, then one by one, so that none can be left.
  EXPECT_EQ(services_.deregisters().size(), 5u);

  auto region = client.RegMsgs(*buffer);
  EXPECT_EQ(ReasonOf(region->Deregister()), v1::LEASE_UNKNOWN);
  EXPECT_FALSE(*region);
}

TEST_F(Calls, DeregisterGoesByTheDaemonsLimit) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto regions = client.Register({}, std::vector<Range>(7, Range(*buffer)));
  ASSERT_TRUE(regions.ok()) << regions.status();
  EXPECT_TRUE(client.Deregister(*regions).ok());
  const auto calls = services_.deregisters();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[0].lease_ids_size(), 3);
  EXPECT_EQ(calls[2].lease_ids_size(), 1);
  for (const Region& region : *regions) EXPECT_FALSE(region);
  regions->clear();
  EXPECT_EQ(services_.deregisters().size(), 3u);
}

TEST_F(Calls, RegionsDeregisterWhenTheyAreDestroyedOrOverwritten) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  {
    Region region = std::move(*client.RegMsgs(*buffer));
    Region other = std::move(region);
    EXPECT_FALSE(region);
    other = std::move(*client.RegMsgs(*buffer));
    EXPECT_EQ(services_.deregisters().size(), 1u);
  }
  EXPECT_EQ(services_.deregisters().size(), 2u);
}

TEST_F(Calls, ListenIsNotRepeated) {
  services_.on_listen = [](int) { return kBroken; };
  Client client = Attach();
  EXPECT_EQ(client.Listen({}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(services_.listens(), 1);
}

TEST_F(Calls, ListLeasesReadsAllPages) {
  services_.on_list_leases = [](const auto& request, auto* response) {
    response->add_leases()->set_lease_id(request.after_lease_id() + 1);
    if (request.after_lease_id() < 4) {
      response->set_next_after_lease_id(request.after_lease_id() + 1);
    }
    return absl::OkStatus();
  };
  Client client = Attach();
  auto leases = client.ListLeases();
  ASSERT_TRUE(leases.ok()) << leases.status();
  ASSERT_EQ(leases->size(), 5u);
  EXPECT_EQ(leases->back().lease_id(), 5u);
}

TEST_F(Calls, PassABufferOnceAndReleaseItInTheEnd) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  struct stat st = {};
  fstat(buffer->fd(), &st);
  EXPECT_TRUE(passed().empty());
  auto first = client.RegMsgs(*buffer);
  auto second = client.RegMsgs(*buffer);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_SOON(passed().size() == 1);
  const auto [id, inode] = passed().at(0);
  EXPECT_EQ(inode, st.st_ino);
  EXPECT_EQ(services_.registers().at(1).ranges(0).buffer_id(), id);
  const auto* data = static_cast<const volatile char*>(buffer->data());
  { const Buffer gone = std::move(*buffer); }
  EXPECT_TRUE(services_.released().empty());
  EXPECT_EQ(*data, 0);  // The regions keep it mapped.
  first = absl::CancelledError();
  second = absl::CancelledError();
  EXPECT_THAT(services_.released(), ElementsAre(id));
}

TEST_F(Calls, PassABufferAnewAfterItsRelease) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  const Range range(*buffer);
  ASSERT_TRUE(client.Register({.release_after = true}, std::span(&range, 1)).ok());
  ASSERT_TRUE(client.RegMsgs(*buffer).ok());
  ASSERT_TRUE(buffer->Release().ok());
  ASSERT_TRUE(client.RegMsgs(*buffer).ok());
  EXPECT_SOON(passed().size() == 3);
  std::set<uint64_t> ids;
  for (const auto& [id, inode] : passed()) ids.insert(id);
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(services_.released().size(), 1u);
}

TEST_F(Calls, PassABufferAnewThatWasOneTooMany) {
  services_.on_register = [](int n, const v1::RegisterRequest& request,
                             v1::RegisterResponse* response) {
    if (n == 1) return MakeError(v1::QUOTA_BUFFERS, "too many");
    return GrantAll(n, request, response);
  };
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  EXPECT_EQ(ReasonOf(client.RegMsgs(*buffer).status()), v1::QUOTA_BUFFERS);
  EXPECT_EQ(services_.released().size(), 1u);
  EXPECT_TRUE(client.RegMsgs(*buffer).ok());
  EXPECT_SOON(passed().size() == 2);
}

TEST_F(Calls, PassManyBuffersInPacketsOfTheDaemonsSize) {
  Client client = Attach();
  std::vector<Buffer> buffers;
  std::vector<Range> ranges;
  buffers.reserve(10);
  for (int i = 0; i < 10; ++i) {
    buffers.push_back(std::move(*client.CreateBuffer(4096)));
    ranges.emplace_back(buffers.back());
    ranges.emplace_back(buffers.front());
  }
  ASSERT_TRUE(client.Register({}, ranges).ok());
  EXPECT_SOON(passed().size() == 10);
  EXPECT_THAT(packets(), ElementsAre(4, 4, 2));
}

// The packets before the one that failed went out, and nothing after it.
TEST_F(Calls, PassAfterAFailureOnlyWhatTheDaemonDoesNotHave) {
  // A descriptor that the fake daemon received could take the number of the one closed here.
  std::unique_lock pause(reading_);
  Client client = Attach();
  auto first = client.CreateBuffer(4096);
  ASSERT_TRUE(client.RegMsgs(*first).ok());  // gRPC has its descriptors from now on.
  constexpr size_t kBuffers = 8;             // Two packets.
  constexpr size_t kRounds = 7;              // The library chooses the order of the buffers.
  std::vector<Buffer> buffers;
  buffers.reserve(kRounds * kBuffers);
  for (size_t round = 0; round < kRounds; ++round) {
    std::vector<Range> ranges;
    for (size_t i = 0; i < kBuffers; ++i) {
      buffers.push_back(std::move(*client.CreateBuffer(4096)));
      ranges.emplace_back(buffers.back());
    }
    const int broken = ranges[round].buffer->fd();
    const internal::UniqueFd kept(fcntl(broken, F_DUPFD_CLOEXEC, broken + 1));
    close(broken);
    for (int attempt = 0; attempt < 3; ++attempt) {
      const absl::Status status = client.Register({}, ranges).status();
      EXPECT_EQ(DetailOf(status)->errno_name(), "EBADF") << status;
    }
    ASSERT_EQ(dup3(kept.get(), broken, O_CLOEXEC), broken);
    ASSERT_TRUE(client.Register({}, ranges).ok());
  }
  pause.unlock();
  EXPECT_SOON(passed().size() == 1 + buffers.size());
  std::set<ino_t> inodes;
  for (const auto& [id, inode] : passed()) inodes.insert(inode);
  EXPECT_EQ(inodes.size(), passed().size());
}

// A daemon ends the session that goes on passing: the library does not let it come so far.
TEST_F(Calls, PassNoMoreBuffersThanTheDaemonHolds) {
  Client client = Attach();
  const int limit = static_cast<int>(client.welcome().limits().max_buffers());
  std::vector<Buffer> buffers;
  std::vector<Range> ranges;
  buffers.reserve(limit + 1);
  for (int i = 0; i <= limit; ++i) {
    buffers.push_back(std::move(*client.CreateBuffer(4096)));
    ranges.emplace_back(buffers.back());
  }
  const auto all_but_one = std::span(ranges).first(limit);
  const auto expect_refusal = [&](uint64_t used) {
    const auto refused = DetailOf(client.Register({}, ranges).status());
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->reason(), v1::QUOTA_BUFFERS);
    EXPECT_EQ(refused->limit(), static_cast<uint64_t>(limit));
    EXPECT_EQ(refused->used(), used);
  };
  expect_refusal(0);
  EXPECT_TRUE(services_.registers().empty());
  EXPECT_TRUE(passed().empty());
  ASSERT_TRUE(client.Register({}, all_but_one).ok());
  expect_refusal(limit);
  // Those released, by a call or with the registration, are not counted.
  ASSERT_TRUE(buffers.front().Release().ok());
  ASSERT_TRUE(client.RegMsgs(buffers.back()).ok());
  ASSERT_TRUE(client.Register({.release_after = true}, std::span(ranges).last(limit)).ok());
  ASSERT_TRUE(client.Register({}, all_but_one).ok());
}

TEST_F(Calls, CountABufferUntilTheDaemonHasLetGo) {
  services_.on_release = [](int n) {
    return n == 1 ? absl::InternalError("no") : MakeError(v1::BUFFER_UNKNOWN, "what buffer?");
  };
  Client client = Attach();
  std::vector<Buffer> buffers;
  std::vector<Range> ranges;
  buffers.reserve(client.welcome().limits().max_buffers());
  while (buffers.size() < buffers.capacity()) {
    buffers.push_back(std::move(*client.CreateBuffer(4096)));
    ranges.emplace_back(buffers.back());
  }
  ASSERT_TRUE(client.Register({}, ranges).ok());
  auto more = client.CreateBuffer(4096);
  EXPECT_EQ(buffers[0].Release().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ReasonOf(client.RegMsgs(*more).status()), v1::QUOTA_BUFFERS);
  EXPECT_EQ(ReasonOf(buffers[1].Release()), v1::BUFFER_UNKNOWN);
  EXPECT_TRUE(client.RegMsgs(*more).ok());
}

TEST_F(Calls, OfManyThreadsPassABufferOnceAndBeforeUsingIt) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 20; ++j) failed += !client.RegMsgs(*buffer).ok();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_SOON(passed().size() == 1);
  for (const auto& request : services_.registers()) {
    EXPECT_EQ(request.ranges(0).buffer_id(), passed().at(0).first);
  }
}

TEST_F(Calls, RefuseABufferOfAnotherSession) {
  Client client = Attach();
  Client other = Attach();
  auto buffer = other.CreateBuffer(4096);
  EXPECT_EQ(client.RegMsgs(*buffer).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(services_.registers().empty());
}

TEST_F(Calls, OfAForkedChildReachNobody) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegMsgs(*buffer);
  ASSERT_TRUE(region.ok()) << region.status();
  const pid_t child = fork();
  if (child == 0) {
    const bool refused =
        region->Deregister().code() == absl::StatusCode::kFailedPrecondition && *region;
    region = absl::CancelledError();
    buffer = absl::CancelledError();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(services_.deregisters().empty());
  EXPECT_TRUE(services_.released().empty());
  EXPECT_TRUE(client.SessionStatus().ok());
}

}  // namespace
}  // namespace mrd::testing
