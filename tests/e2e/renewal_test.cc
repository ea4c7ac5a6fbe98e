// Leases with a ttl: they lapse unless they are renewed, nothing delays a renewal, and the client
// learns of what has lapsed.
#include <signal.h>

#include <atomic>
#include <set>
#include <thread>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

class RenewalTest : public EachFabricTest {
 protected:
  v1::RegisterRequest WithTtl(uint64_t buffer_id, int64_t seconds, int32_t nanos = 0) const {
    v1::RegisterRequest request = RequestFor(buffer_id, memory_);
    request.mutable_ttl()->set_seconds(seconds);
    request.mutable_ttl()->set_nanos(nanos);
    return request;
  }
  Process StartClient() { return Process({.argv = {"tests/e2e/test_client", dir()}}); }

  const Memory memory_{kPage};
};
MRD_ON_EACH_FABRIC(RenewalTest);

TEST_P(RenewalTest, ALeaseLapsesAndTheSessionIsTold) {
  StartThis();
  RawClient client(dir());
  const uint64_t buffer = client.Pass(memory_);
  const auto lasting = client.Register(RequestFor(buffer, memory_));
  ASSERT_TRUE(lasting.ok()) << lasting.text();
  EXPECT_FALSE(lasting.response.leases(0).has_remaining());
  const auto lapsing = client.Register(WithTtl(buffer, 1));
  ASSERT_TRUE(lapsing.ok()) << lapsing.text();
  EXPECT_EQ(lapsing.response.leases(0).remaining().seconds(), 1);
  const auto began = Clock::now();
  const auto packet = client.attach().Receive();
  ASSERT_TRUE(packet && packet->has_event());
  EXPECT_GE(Clock::now() - began, milliseconds(900));
  EXPECT_LT(Clock::now() - began, Promised(milliseconds(1500)));
  EXPECT_EQ(packet->event().kind(), v1::AttachEvent::LAPSED);
  EXPECT_EQ(packet->event().sequence(), 1u);
  ASSERT_EQ(packet->event().lease_ids_size(), 1);
  EXPECT_EQ(packet->event().lease_ids(0), lapsing.response.leases(0).lease_id());
  EXPECT_EQ(Look().regions, 1u) << "the fence came first";
  EXPECT_EQ(client.Deregister({packet->event().lease_ids(0)}).reason(), v1::LEASE_UNKNOWN);
  EXPECT_EQ(client.Renew({packet->event().lease_ids(0)}).reason(), v1::LEASE_UNKNOWN);
  EXPECT_TRUE(client.Deregister({lasting.response.leases(0).lease_id()}).ok());
}

TEST_P(RenewalTest, OneCallKeepsAllLeases) {
  StartThis();
  RawClient client(dir());
  const uint64_t buffer = client.Pass(memory_);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client.Register(WithTtl(buffer, 1)).ok());
  ASSERT_TRUE(client.Register(WithTtl(buffer, 2)).ok());
  const auto until = Clock::now() + seconds(3);
  while (Clock::now() < until) {
    const auto renewed = client.Renew();
    ASSERT_TRUE(renewed.ok()) << renewed.text();
    ASSERT_EQ(renewed.response.renewed(), 21u);
    ASSERT_EQ(renewed.response.shortest_ttl().seconds(), 1);
    std::this_thread::sleep_for(milliseconds(250));
  }
  EXPECT_FALSE(client.attach().Receive(milliseconds(1)));
}

TEST_P(RenewalTest, TtlsOfAnyKindAreBroughtWithinBoundsOrRefused) {
  StartThis();
  RawClient client(dir());
  const uint64_t buffer = client.Pass(memory_);
  const auto nanosecond = client.Register(WithTtl(buffer, 0, 1));
  ASSERT_TRUE(nanosecond.ok()) << nanosecond.text();
  EXPECT_EQ(nanosecond.response.leases(0).remaining().seconds(), 1);
  const auto centuries = client.Register(WithTtl(buffer, 300ll * 365 * 24 * 3600));
  ASSERT_TRUE(centuries.ok()) << centuries.text();
  EXPECT_EQ(centuries.response.leases(0).remaining().seconds(), 365ll * 24 * 3600);
  EXPECT_TRUE(client.Register(WithTtl(buffer, INT64_MAX, 999999999)).ok());
  EXPECT_FALSE(client.Register(WithTtl(buffer, 0)).response.leases(0).has_remaining());
  for (const auto& [seconds, nanos] : {std::pair<int64_t, int32_t>{-1, 0},
                                       {0, -1},
                                       {INT64_MIN, 0},
                                       {1, 1000000000},
                                       {1, INT32_MIN}}) {
    const auto refused = client.Register(WithTtl(buffer, seconds, nanos));
    EXPECT_EQ(refused.reason(), v1::REQUEST_INVALID) << seconds << " " << nanos;
    EXPECT_NE(refused.text().find("ttl"), std::string::npos) << refused.text();
  }
}

TEST_P(RenewalTest, NobodyRenewsAnothersLease) {
  StartThis();
  RawClient owner(dir());
  RawClient other(dir());
  const auto lease = owner.Register(WithTtl(owner.Pass(memory_), 1));
  ASSERT_TRUE(lease.ok()) << lease.text();
  EXPECT_EQ(other.Renew({lease.response.leases(0).lease_id()}).reason(), v1::LEASE_UNKNOWN);
  EXPECT_EQ(other.Renew(std::vector<uint64_t>(10001, 1)).reason(), v1::INVALID_LENGTH);
  const auto until = Clock::now() + milliseconds(1500);
  while (Clock::now() < until) EXPECT_EQ(other.Renew().response.renewed(), 0u);
  EXPECT_EQ(Look().regions, 0u) << "it lapsed all the same";
}

TEST_P(RenewalTest, AClientThatDoesNotReadLosesEventsAndIsToldSo) {
  StartThis();
  RawClient client(dir());
  RawClient other(dir());
  const uint64_t buffer = client.Pass(memory_);
  // Their ids do not fit into the socket's buffer.
  v1::RegisterRequest request = WithTtl(buffer, 1);
  while (request.ranges_size() < 10000) *request.add_ranges() = request.ranges(0);
  const size_t count = 3 * request.ranges_size();
  for (int i = 0; i < 3; ++i) {
    const auto registered = client.Register(request);
    ASSERT_TRUE(registered.ok()) << registered.text();
  }
  ASSERT_TRUE(WaitUntil(kPatience, [&] { return Look().regions == 0; }));
  EXPECT_TRUE(other.GetStatus().ok());
  std::set<uint64_t> told;
  uint64_t sequence = 0;
  bool lost = false;
  while (const auto packet = client.attach().Receive(lost ? milliseconds(100) : kPatience)) {
    ASSERT_TRUE(packet->has_event());
    EXPECT_GT(packet->event().sequence(), sequence);
    if (packet->event().kind() == v1::AttachEvent::EVENTS_LOST) {
      EXPECT_GT(packet->event().sequence(), sequence + 1) << "a gap";
      lost = true;
    }
    sequence = packet->event().sequence();
    told.insert(packet->event().lease_ids().begin(), packet->event().lease_ids().end());
  }
  EXPECT_TRUE(lost);
  EXPECT_LT(told.size(), count);
  EXPECT_EQ(client.ListLeases().response.leases_size(), 0);
}

TEST_P(RenewalTest, TheLibraryRenewsByItself) {
  StartThis();
  Process client = StartClient();
  ASSERT_EQ(client.Ask("attach").substr(0, 2), "ok");
  ASSERT_EQ(client.Ask("buffer 4096"), "ok");
  ASSERT_EQ(client.Ask("register 5 1000").substr(0, 2), "ok");
  std::this_thread::sleep_for(seconds(3));
  EXPECT_EQ(client.Ask("events"), "ok");
  EXPECT_EQ(Look().regions, 5u);
  EXPECT_EQ(client.Ask("deregister"), "ok");
}

TEST_P(RenewalTest, TheLibraryRenewsNothingWhereItIsToldNotTo) {
  StartThis();
  Process client = StartClient();
  ASSERT_EQ(client.Ask("manual").substr(0, 2), "ok");
  ASSERT_EQ(client.Ask("buffer 4096"), "ok");
  EXPECT_EQ(client.Ask("renew"), "ok none");
  const std::string registered = client.Ask("register 1 1000");
  ASSERT_EQ(registered.substr(0, 3), "ok ");
  EXPECT_EQ(client.Ask("renew"), "ok 1000");
  ASSERT_TRUE(WaitUntil(kPatience, [&] { return client.Ask("events") != "ok"; }));
  EXPECT_EQ(client.Ask("events"), "ok LAPSED " + registered.substr(3));
  EXPECT_EQ(Look().regions, 0u);
}

TEST_P(RenewalTest, S21AStoppedClientLosesLeasesWithATtlAndLearnsItAndKeepsTheOthers) {
  StartThis();
  Process client = StartClient();
  ASSERT_EQ(client.Ask("attach").substr(0, 2), "ok");
  ASSERT_EQ(client.Ask("buffer 4096"), "ok");
  const std::string lapsing = client.Ask("register 1 1000");
  ASSERT_EQ(lapsing.substr(0, 3), "ok ");
  ASSERT_EQ(client.Ask("register 1").substr(0, 2), "ok");
  client.Kill(SIGSTOP);
  std::this_thread::sleep_for(seconds(2));
  EXPECT_EQ(Look().regions, 1u);
  EXPECT_EQ(Look().sessions, baseline().sessions + 1);
  client.Kill(SIGCONT);
  ASSERT_TRUE(WaitUntil(milliseconds(500), [&] { return client.Ask("events") != "ok"; }));
  EXPECT_EQ(client.Ask("events"), "ok LAPSED " + lapsing.substr(3));
  EXPECT_EQ(client.Ask("session"), "ok");
  EXPECT_EQ(client.Ask("register 1").substr(0, 2), "ok");
}

class SlowNeighbourTest : public DaemonTest {};

TEST_F(SlowNeighbourTest, S01ASlowRegistrationStarvesNobodysRenewals) {
  Start({.fabric = "verbs", .devices = "devices=fake0,slow0;slow0.reg_delay_ms=4000"});
  const Memory memory(kPage);
  RawClient slow(dir());
  RawClient lively(dir());
  auto request = RequestFor(slow.Pass(memory), memory);
  request.add_devices("slow0");
  std::atomic<int> done = 0;
  std::vector<std::thread> running;
  for (unsigned i = 0; i < 2 * std::max(4u, std::thread::hardware_concurrency()); ++i) {
    running.emplace_back([&] {
      EXPECT_TRUE(slow.Register(request).ok());
      ++done;
    });
  }
  auto kept = RequestFor(lively.Pass(memory), memory);
  kept.mutable_ttl()->set_seconds(1);
  const auto lease = lively.Register(kept);
  ASSERT_TRUE(lease.ok()) << lease.text();
  milliseconds slowest{0};
  int calls = 0;
  while (done < 2) {
    const auto began = Clock::now();
    ASSERT_EQ(lively.Renew().response.renewed(), 1u);
    // The slow session itself is not kept from renewing either.
    ASSERT_TRUE(slow.Renew().ok());
    slowest = std::max(slowest, std::chrono::duration_cast<milliseconds>(Clock::now() - began));
    ++calls;
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_GT(calls, 20);
  EXPECT_LT(slowest, Promised(milliseconds(100)));
  EXPECT_FALSE(lively.attach().Receive(milliseconds(1))) << "nothing has lapsed";
  EXPECT_TRUE(lively.Deregister({lease.response.leases(0).lease_id()}).ok());
  for (std::thread& call : running) call.join();
}

}  // namespace
}  // namespace mrd::e2e
