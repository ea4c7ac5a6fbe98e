// Limits: each names itself, what it is and what is used, and racing calls cannot pass it together.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

class LimitsTest : public RefusalTest<EachFabricTest> {};
MRD_ON_EACH_FABRIC(LimitsTest);

TEST_P(LimitsTest, QuotaBytes) {
  StartThis({.set = "pinned_bytes=32768"});
  RawClient client(dir());
  const Memory memory(16 * kPage);
  const uint64_t id = Pass(client, memory.fd());
  auto answer = Refused(client, RequestFor(id, memory.addr(), 8 * kPage + 1), v1::QUOTA_BYTES);
  ExpectLimit(answer, "pinned bytes of uid 0", 32768, 0);
  ASSERT_TRUE(client.Register(RequestFor(id, memory.addr(), 4 * kPage)).ok());
  answer = Refused(client, RequestFor(id, memory.addr(), 5 * kPage), v1::QUOTA_BYTES);
  ExpectLimit(answer, "pinned bytes of uid 0", 32768, 16384);
  // Whole pages count, of each registration: one byte on two pages is two of them.
  EXPECT_TRUE(client.Register(RequestFor(id, memory.addr() + 4095, 2, 4095)).ok());
  EXPECT_TRUE(client.Register(RequestFor(id, memory.addr(), 1)).ok());
  EXPECT_TRUE(client.Register(RequestFor(id, memory.addr(), 1)).ok());
  ExpectLimit(Refused(client, RequestFor(id, memory.addr(), 1), v1::QUOTA_BYTES), "pinned bytes",
              32768, 32768);
}

TEST_P(LimitsTest, AUserMayPinHalfOfTheMachinesMemoryByDefault) {
  StartThis();
  RawClient client(dir());
  const auto status = client.GetStatus().response;
  const auto quota =
      std::find_if(status.quotas().begin(), status.quotas().end(),
                   [](const v1::Quota& each) { return each.name() == "pinned bytes of uid 0"; });
  ASSERT_NE(quota, status.quotas().end());
  EXPECT_EQ(quota->limit(), uint64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 2);
  EXPECT_EQ(quota->used(), 0u);
}

TEST_P(LimitsTest, QuotaRegions) {
  StartThis({.set = "regions=3"});
  RawClient client(dir());
  RawClient other(dir());
  const Memory memory(kPage);
  other.RegisterAll(memory);
  const uint64_t id = Pass(client, memory.fd());
  ASSERT_TRUE(client.Register(RequestFor(id, memory)).ok());
  auto two = RequestFor(id, memory);
  AddRange(&two, id, memory.addr(), kPage);
  // Over all sessions of the user.
  ExpectLimit(Refused(client, two, v1::QUOTA_REGIONS), "regions of uid 0", 3, 2);
  EXPECT_TRUE(client.Register(RequestFor(id, memory)).ok());
  ExpectLimit(Refused(client, RequestFor(id, memory), v1::QUOTA_REGIONS), "regions of uid 0", 3, 3);
}

TEST_P(LimitsTest, QuotaSessions) {
  StartThis({.set = "sessions=2"});  // The admin's is none of them, though of this uid.
  RawClient first(dir());
  RawClient second(dir());
  const Holdings before = Look();
  {
    const AttachSocket third(dir() + "/attach.sock");
    ASSERT_TRUE(third.SendHello());
    const auto packet = third.Receive();
    ASSERT_TRUE(packet && packet->has_refusal());
    v1::ErrorDetail detail;
    ASSERT_TRUE(detail.ParseFromString(packet->refusal().detail()));
    EXPECT_EQ(detail.reason(), v1::QUOTA_SESSIONS);
    EXPECT_EQ(packet->refusal().code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(detail.limit_name(), "sessions of uid 0");
    EXPECT_EQ(detail.limit(), 2u);
    EXPECT_EQ(detail.used(), 2u);
    EXPECT_TRUE(third.HangsUp());
  }
  ExpectHoldings(before);
  second.HangUp();
  ASSERT_TRUE(WaitUntil(kPatience, [this] { return Look().sessions == 2; }));
  RawClient(dir()).GetStatus();
}

TEST_P(LimitsTest, AUserHasAtMostHalfOfTheDescriptors) {
  constexpr size_t kFew = 640;
  StartThis({.set = "nofile=" + std::to_string(kFew)});
  const size_t before = daemon().resources().fds;
  const Memory memory(kPage);
  std::vector<std::unique_ptr<RawClient>> clients;
  // Their connections count with the admin's, which is of this process.
  while (Look().sessions < kFew / 16) clients.push_back(std::make_unique<RawClient>(dir()));
  const AttachSocket last(dir() + "/attach.sock");
  ASSERT_TRUE(last.SendHello());
  ASSERT_TRUE(last.Receive()->has_welcome());
  const AttachSocket next(dir() + "/attach.sock");
  ASSERT_TRUE(next.SendHello());
  const auto packet = next.Receive();
  ASSERT_TRUE(packet && packet->has_refusal());
  size_t registered = 0;
  for (const auto& client : clients) {
    for (uint64_t id = 1; id <= 10; ++id) {
      client->Pass(memory);
      const auto answer = client->Register(RequestFor(id, memory));
      registered += answer.ok();
      EXPECT_TRUE(answer.ok() || answer.reason() == v1::QUOTA_BUFFERS) << answer.text();
    }
  }
  EXPECT_EQ(registered, kFew / 4);
  // What is refused is closed soon.
  EXPECT_TRUE(
      WaitUntil(kPatience, [&] { return daemon().resources().fds <= before + kFew / 2 + 2; }));
}

TEST_P(LimitsTest, QuotaBuffers) {
  StartThis({.set = "buffers=2"});
  RawClient client(dir());
  const Memory memory(kPage);
  client.Pass(memory);
  client.Pass(memory);
  const uint64_t third = client.Pass(memory);
  const auto answer = client.Register(RequestFor(third, memory));
  ExpectRefusal(answer, v1::QUOTA_BUFFERS);
  ExpectLimit(answer, "buffers of the session", 2, 2);
  EXPECT_TRUE(client.Register(RequestFor(1, memory)).ok());
  // The refused one's descriptor is closed, and nothing of it is left once it is released.
  const size_t fds = daemon().resources().fds;
  EXPECT_TRUE(client.Release({third}).ok());
  EXPECT_LE(daemon().resources().fds, fds);
  ASSERT_TRUE(client.Release({2}).ok());
  EXPECT_TRUE(client.Register(RequestFor(client.Pass(memory), memory)).ok());
}

TEST_P(LimitsTest, TheBuffersOfAllSessionsOfAUidAreBounded) {
  StartThis({.set = "buffers_of_uid=3"});
  const Memory memory(kPage);
  RawClient one(dir());
  RawClient two(dir());
  one.Pass(memory);
  one.Pass(memory);
  EXPECT_TRUE(two.Register(RequestFor(two.Pass(memory), memory)).ok());
  const uint64_t fourth = two.Pass(memory);
  const auto answer = two.Register(RequestFor(fourth, memory));
  ExpectRefusal(answer, v1::QUOTA_BUFFERS);
  ExpectLimit(answer, "buffers of uid 0", 3, 3);
  EXPECT_TRUE(two.Release({fourth}).ok());
  EXPECT_TRUE(one.Release({1}).ok());
  EXPECT_TRUE(two.Register(RequestFor(two.Pass(memory), memory)).ok());
}

TEST_P(LimitsTest, FarTooManyBuffersEndTheSession) {
  StartThis({.set = "buffers=2"});
  RawClient client(dir());
  const Memory memory(kPage);
  bool hung_up = false;
  for (int i = 0; i < 5000 && !hung_up; ++i) {
    std::vector<uint64_t> ids;
    for (uint64_t k = 1; k <= 64; ++k) ids.push_back(i * 64 + k);
    hung_up = !client.attach().SendBuffers(ids, std::vector<int>(64, memory.fd()));
  }
  EXPECT_TRUE(hung_up);
}

TEST_P(LimitsTest, QuotaEndpoints) {
  StartThis({.set = "endpoints=2"});
  RawClient client(dir());
  const auto one = client.Listen(address());
  const auto two = client.Listen(address());
  ASSERT_TRUE(one.ok() && two.ok()) << one.text() << two.text();
  const Holdings before = Look();
  auto listen = client.Listen(address());
  ExpectRefusal(listen, v1::QUOTA_ENDPOINTS);
  ExpectLimit(listen, "endpoints of uid 0", 2, 2);
  const uint64_t id = one.response.endpoint().endpoint_id();
  ExpectRefusal(client.Accept(id, seconds(1)), v1::QUOTA_ENDPOINTS);
  ExpectRefusal(client.Connect("127.0.0.1", 1), v1::QUOTA_ENDPOINTS);
  EXPECT_EQ(Look(), before);
  ASSERT_TRUE(client.Disconnect(id).ok());
  EXPECT_TRUE(client.Listen(address()).ok());
}

TEST_P(LimitsTest, ConnectionsOverTheLimitAreClosedAtOnce) {
  StartThis({.set = "connections=2"});
  const Holdings before = Look();
  const size_t fds = daemon().resources().fds;
  {
    const UniqueFd second(Connect(dir() + "/mrd.sock", SOCK_STREAM));
    ASSERT_TRUE(WaitUntil(kPatience, [&] { return daemon().resources().fds == fds + 2; }));
    const UniqueFd third(Connect(dir() + "/mrd.sock", SOCK_STREAM));
    char byte;
    EXPECT_EQ(recv(third.get(), &byte, 1, 0), 0);
    // It is shut down first, and closed a moment later.
    EXPECT_TRUE(WaitUntil(kPatience, [&] { return daemon().resources().fds <= fds + 2; }));
    const UniqueFd fourth(Connect(dir() + "/mrd.sock", SOCK_STREAM));
    EXPECT_EQ(recv(fourth.get(), &byte, 1, 0), 0);
    const std::string log = daemon().Log();
    const size_t warned = log.find("to mrd.sock is closed");
    EXPECT_NE(warned, std::string::npos) << "the operator is told";
    EXPECT_EQ(log.find("to mrd.sock is closed", warned + 1), std::string::npos) << "once";
  }
  ExpectHoldings(before);
}

TEST_P(LimitsTest, AConnectionThatOnlyClosesItsSendingHalfIsClosed) {
  StartThis();
  const size_t fds = daemon().resources().fds;
  const UniqueFd half(Connect(dir() + "/mrd.sock", SOCK_STREAM));
  ASSERT_TRUE(WaitUntil(kPatience, [&] { return daemon().resources().fds > fds; }));
  ASSERT_EQ(shutdown(half.get(), SHUT_WR), 0);
  EXPECT_TRUE(WaitUntil(kPatience, [&] { return daemon().resources().fds <= fds; }));
  EXPECT_EQ(Look(), baseline());
}

TEST_P(LimitsTest, RacingCallsCannotPassALimitTogether) {
  const uint64_t limit = 100;
  StartThis({.set = "regions=" + std::to_string(limit)});
  std::vector<std::thread> threads;
  std::atomic<uint64_t> made = 0;
  std::atomic<int> others = 0;
  std::vector<std::unique_ptr<RawClient>> clients;
  const Memory memory(kPage);
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<RawClient>(dir()));
  for (const auto& client : clients) {
    threads.emplace_back([&, id = client->Pass(memory)] {
      for (;;) {
        const auto answer = client->Register(RequestFor(id, memory));
        if (!answer.ok()) {
          others += answer.reason() != v1::QUOTA_REGIONS;
          return;
        }
        ++made;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(made.load(), limit);
  EXPECT_EQ(others.load(), 0);
  EXPECT_EQ(Look().regions, limit);
}

// A device that takes its time keeps calls waiting.
class BusyTest : public DaemonTest {
 protected:
  void StartSlow(const std::string& set) {
    Start({.fabric = "verbs", .devices = "devices=fake0;fake0.reg_delay_ms=1500", .set = set});
  }
  using Future = std::future<Answer<v1::RegisterResponse>>;
  Future Begin(RawClient& client, uint64_t buffer) {
    return std::async(std::launch::async, [this, &client, buffer] {
      return client.Register(RequestFor(buffer, memory_));
    });
  }
  // Of these calls one waits in the queue, and the others learn at once that it is full.
  void ExpectOneQueuedAndOthersBusy(std::vector<Future> calls, const std::string& limit) {
    int taken = 0;
    for (Future& call : calls) {
      const auto answer = call.get();
      if (answer.ok()) {
        ++taken;
        continue;
      }
      ExpectRefusal(answer, v1::BUSY);
      ExpectLimit(answer, limit, 1, 1);
    }
    EXPECT_EQ(taken, 1);
  }
  // Too large for a thread that takes calls to register it itself.
  const Memory memory_{2 << 20};
};

TEST_F(BusyTest, CallsInFlightOfASessionAreBounded) {
  StartSlow("calls=2");
  RawClient client(dir());
  const uint64_t id = client.Pass(memory_);
  auto one = Begin(client, id);
  auto two = Begin(client, id);
  ASSERT_TRUE(WaitUntil(kPatience, [&] { return Look().regions == 2; }));
  const auto third = client.ListLeases();
  ExpectRefusal(third, v1::BUSY);
  ExpectLimit(third, "calls in flight", 2, 2);
  RawClient other(dir());
  EXPECT_TRUE(other.ListLeases().ok()) << "another session's calls are its own";
  EXPECT_TRUE(one.get().ok() && two.get().ok());
  EXPECT_TRUE(client.ListLeases().ok());
}

TEST_F(BusyTest, TheQueueOfASessionIsBounded) {
  StartSlow("registrar_threads=2,queued=1");  // One thread a session.
  RawClient client(dir());
  const uint64_t id = client.Pass(memory_);
  auto running = Begin(client, id);
  ASSERT_TRUE(WaitUntil(kPatience, [&] { return Look().regions == 1; }));
  std::vector<Future> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(Begin(client, id));
  ExpectOneQueuedAndOthersBusy(std::move(calls), "queued registrations of the session");
  EXPECT_TRUE(running.get().ok());
}

TEST_F(BusyTest, TheQueueOfAllIsBounded) {
  StartSlow("registrar_threads=3,queued_in_all=1");  // One thread a session, two a uid.
  RawClient one(dir());
  RawClient two(dir());
  const uint64_t first = one.Pass(memory_);
  const uint64_t second = two.Pass(memory_);
  auto running = Begin(one, first);
  ASSERT_TRUE(WaitUntil(kPatience, [&] { return Look().regions == 1; }));
  auto other_running = Begin(two, second);
  ASSERT_TRUE(WaitUntil(kPatience, [&] { return Look().regions == 2; }));
  std::vector<Future> calls;
  for (int i = 0; i < 2; ++i) {
    calls.push_back(Begin(one, first));
    calls.push_back(Begin(two, second));
  }
  ExpectOneQueuedAndOthersBusy(std::move(calls), "queued registrations");
  EXPECT_TRUE(running.get().ok() && other_running.get().ok());
}

}  // namespace
}  // namespace mrd::e2e
