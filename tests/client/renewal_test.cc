// Renewal in the background, progress of long calls, and regions that ended without being asked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
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
using std::chrono::seconds;

// Grants what is asked for, for as long as it is asked for.
absl::Status GrantTtl(int n, const v1::RegisterRequest& request, v1::RegisterResponse* response) {
  absl::Status granted = GrantAll(n, request, response);
  for (v1::Lease& lease : *response->mutable_leases()) {
    if (request.has_ttl()) *lease.mutable_remaining() = request.ttl();
  }
  return granted;
}

class Renewals : public ::testing::Test {
 protected:
  Renewals() {
    services_.on_register = GrantTtl;
    services_.on_renew = [this](int, v1::RenewLeasesResponse* response) {
      response->mutable_shortest_ttl()->set_nanos(static_cast<int32_t>(ttl_.load() * 1'000'000));
      if (ttl_ == 0) response->clear_shortest_ttl();
      return absl::OkStatus();
    };
  }
  Client Attach(bool renew = true) {
    auto client = Client::Attach({.socket_dir = daemon_.dir(), .renew = renew});
    EXPECT_TRUE(client.ok()) << client.status();
    return std::move(*client);
  }
  absl::StatusOr<std::vector<Region>> Register(const Client& client, const Buffer& buffer,
                                               milliseconds ttl, size_t count = 1) {
    const std::vector<Range> ranges(count, Range(buffer, 0, 4096));
    return client.Register({.preset = v1::Access::REG_MSGS, .ttl = ttl}, ranges);
  }
  bool Soon(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(5));
    return condition();
  }

  // Sends these events to whoever attaches, once the client has asked for something.
  void Serve(int socket) {
    FakeDaemon::Welcome(socket);
    for (;;) {
      pollfd waits = {socket, POLLIN, 0};
      poll(&waits, 1, 10);
      if (waits.revents != 0 && FakeDaemon::Receive(socket).hung_up) return;
      const std::string request = progress_of_;
      if (!report_ || request.empty()) continue;
      v1::DaemonPacket packet;
      packet.mutable_event()->set_kind(v1::AttachEvent::PROGRESS);
      packet.mutable_event()->mutable_progress()->set_request_id(request);
      packet.mutable_event()->mutable_progress()->set_bytes_total(100);
      packet.mutable_event()->mutable_progress()->set_bytes_pinned(++reported_);
      FakeDaemon::Send(socket, packet);
    }
  }

  std::atomic<int> ttl_ = 90;  // Milliseconds.
  std::atomic<bool> report_ = false;
  std::string progress_of_;  // Set before report_.
  int reported_ = 0;
  FakeDaemon daemon_{[this](int socket) { Serve(socket); }};
  FakeServices services_{daemon_.dir()};
};

TEST_F(Renewals, ComeInAThirdOfTheTtlAndOnlyWhereThereIsOne) {
  const Client client = Attach();
  const auto buffer = client.CreateBuffer(4096);
  auto lasting = Register(client, *buffer, milliseconds(0));
  ASSERT_TRUE(lasting.ok());
  EXPECT_EQ((*lasting)[0].ttl(), milliseconds(0));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(services_.renewals(), 0);
  auto lapsing = Register(client, *buffer, milliseconds(90));
  ASSERT_TRUE(lapsing.ok());
  EXPECT_EQ((*lapsing)[0].ttl(), milliseconds(90));
  EXPECT_TRUE(Soon([&] { return services_.renewals() >= 5; }));
  // The last lease with a ttl has ended.
  ttl_ = 0;
  std::this_thread::sleep_for(milliseconds(100));
  const int renewals = services_.renewals();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(services_.renewals(), renewals);
  ttl_ = 90;
  ASSERT_TRUE(Register(client, *buffer, milliseconds(90)).ok());
  EXPECT_TRUE(Soon([&] { return services_.renewals() > renewals + 2; }));
}

TEST_F(Renewals, GoOnAfterOneThatFailed) {
  services_.on_renew = [](int n, v1::RenewLeasesResponse* response) {
    if (n < 3) return MakeError(v1::DEVICE_ERROR, "no");
    response->mutable_shortest_ttl()->set_nanos(90'000'000);
    return absl::OkStatus();
  };
  const Client client = Attach();
  const auto buffer = client.CreateBuffer(4096);
  const auto regions = Register(client, *buffer, milliseconds(90));
  ASSERT_TRUE(regions.ok());
  EXPECT_TRUE(Soon([&] { return services_.renewals() >= 6; }));
}

TEST_F(Renewals, AreLeftToACallerWhoWantsIt) {
  const Client client = Attach(/*renew=*/false);
  const auto buffer = client.CreateBuffer(4096);
  const auto regions = Register(client, *buffer, milliseconds(90));
  ASSERT_TRUE(regions.ok());
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(services_.renewals(), 0);
  const auto shortest = client.RenewLeases();
  ASSERT_TRUE(shortest.ok()) << shortest.status();
  EXPECT_EQ(*shortest, milliseconds(90));
  EXPECT_EQ(services_.renewals(), 1);
}

TEST_F(Renewals, EndWithTheClientThoughACallIsUnderWay) {
  std::atomic<bool> waits = false;
  services_.on_renew = [&](int, v1::RenewLeasesResponse*) {
    waits = true;
    std::this_thread::sleep_for(milliseconds(300));
    return absl::OkStatus();
  };
  {
    const Client client = Attach();
    const auto buffer = client.CreateBuffer(4096);
    const auto regions = Register(client, *buffer, milliseconds(90));
    ASSERT_TRUE(Soon([&] { return waits.load(); }));
  }
  const int renewals = services_.renewals();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(services_.renewals(), renewals);
}

TEST_F(Renewals, ProgressIsToldToWhoRegistersAndCancelsWhereTheySaySo) {
  const Client client = Attach();
  const auto buffer = client.CreateBuffer(4096);
  services_.on_register = [&](int n, const v1::RegisterRequest& request,
                              v1::RegisterResponse* response) {
    progress_of_ = request.request_id();
    report_ = true;
    std::this_thread::sleep_for(milliseconds(n == 1 ? 300 : 2000));
    report_ = false;
    return GrantAll(n, request, response);
  };
  const std::vector<Range> ranges(1, Range(*buffer));
  std::atomic<int> heard = 0;
  auto regions = client.Register({.preset = v1::Access::REG_MSGS,
                                  .on_progress =
                                      [&](const v1::AttachEvent::Progress& progress) {
                                        EXPECT_EQ(progress.bytes_total(), 100u);
                                        ++heard;
                                        return true;
                                      }},
                                 ranges);
  ASSERT_TRUE(regions.ok()) << regions.status();
  EXPECT_GT(heard, 2);
  const int last = heard;
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(heard, last) << "not after the call";

  const auto began = std::chrono::steady_clock::now();
  const auto cancelled =
      client.Register({.preset = v1::Access::REG_MSGS,
                       .on_progress = [](const v1::AttachEvent::Progress&) { return false; }},
                      ranges);
  EXPECT_EQ(cancelled.status().code(), absl::StatusCode::kCancelled) << cancelled.status();
  EXPECT_LT(std::chrono::steady_clock::now() - began, milliseconds(1500));
}

TEST_F(Renewals, ATtlOfNothingIsNotRenewedWithoutPause) {
  std::atomic<int> calls = 0;
  services_.on_renew = [&](int, v1::RenewLeasesResponse* response) {
    ++calls;
    response->mutable_shortest_ttl();  // Of 0.
    return absl::OkStatus();
  };
  const Client client = Attach();
  const auto buffer = client.CreateBuffer(4096);
  ASSERT_TRUE(Register(client, *buffer, milliseconds(1)).ok());
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LE(calls, 320);
}

TEST_F(Renewals, DeregisterEndsTheOthersWhereSomeHaveEndedBefore) {
  const Client client = Attach();
  const auto buffer = client.CreateBuffer(4096);
  auto regions = Register(client, *buffer, milliseconds(0), 10);
  ASSERT_TRUE(regions.ok());
  std::set<uint64_t> live;
  for (const Region& region : *regions) live.insert(region.lease_id());
  live.erase((*regions)[3].lease_id());
  live.erase((*regions)[7].lease_id());
  // As the daemon does it: all of a call's or none.
  services_.on_deregister = [&](int, const v1::DeregisterRequest& request) {
    for (const uint64_t id : request.lease_ids()) {
      if (!live.contains(id)) return MakeError(v1::LEASE_UNKNOWN, "no lease");
    }
    for (const uint64_t id : request.lease_ids()) live.erase(id);
    return absl::OkStatus();
  };
  EXPECT_EQ(ReasonOf(client.Deregister(*regions)), v1::LEASE_UNKNOWN);
  EXPECT_TRUE(live.empty());
  for (const Region& region : *regions) EXPECT_FALSE(region);
  EXPECT_TRUE(client.Deregister(*regions).ok());
}

}  // namespace
}  // namespace mrd::testing
