// Calls that race never pass one limit together, and never get less than it: sixty-four at once, of
// several sessions of one uid, round after round.
#include <atomic>
#include <functional>
#include <thread>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

constexpr int kRacers = 64;
constexpr int kSessions = 8;
constexpr int kRounds = 20;
constexpr int kAllowed = 23;  // Not a multiple of anything here.

class RacingLimitsTest : public EachFabricTest {
 protected:
  void StartWith(const std::string& limit) {
    StartThis({.policy = "rules { name: \"race\" uid: 0 limits { " + limit + " } }"});
    for (int i = 0; i < kSessions; ++i) clients_.push_back(std::make_unique<RawClient>(dir()));
    for (const auto& client : clients_) buffers_.push_back(client->Pass(memory_));
  }

  void TearDown() override {
    clients_.clear();
    EachFabricTest::TearDown();
  }

  // Runs `race(i)` on a thread for each racer, all let go at once; how many were let through. It
  // answers whether it was, and has looked at the refusal where it was not.
  static int Race(const std::function<bool(int)>& race) {
    std::atomic<int> ready = 0;
    std::atomic<int> through = 0;
    std::vector<std::thread> racers;
    for (int i = 0; i < kRacers; ++i) {
      racers.emplace_back([&, i] {
        ++ready;
        while (ready < kRacers) std::this_thread::yield();
        through += race(i);
      });
    }
    for (std::thread& racer : racers) racer.join();
    return through;
  }

  // All rounds of Register calls, of which kAllowed may hold at once.
  void RaceRegistrations(uint64_t length, v1::Reason reason) {
    for (int round = 0; round < kRounds; ++round) {
      std::vector<uint64_t> leases(kRacers);
      const int through = Race([&](int i) {
        RawClient& client = *clients_[i % kSessions];
        const auto made =
            client.Register(RequestFor(buffers_[i % kSessions], memory_.addr(), length));
        if (!made.ok()) {
          EXPECT_EQ(made.reason(), reason) << made.text();
          return false;
        }
        leases[i] = made.response.leases(0).lease_id();
        return true;
      });
      ASSERT_EQ(through, kAllowed) << "in round " << round;
      ASSERT_EQ(Look().regions, static_cast<uint64_t>(kAllowed));
      // Ended by as many at once.
      ASSERT_EQ(Race([&](int i) {
                  return leases[i] != 0 && clients_[i % kSessions]->Deregister({leases[i]}).ok();
                }),
                kAllowed);
      ASSERT_EQ(Look().regions, 0u);
      ASSERT_EQ(Look().pinned_bytes, 0u);
    }
  }

  const Memory memory_{4 * kPage};
  std::vector<std::unique_ptr<RawClient>> clients_;
  std::vector<uint64_t> buffers_;
};
MRD_ON_EACH_FABRIC(RacingLimitsTest);

TEST_P(RacingLimitsTest, Regions) {
  StartWith("regions: " + std::to_string(kAllowed));
  RaceRegistrations(kPage, v1::QUOTA_REGIONS);
}

TEST_P(RacingLimitsTest, PinnedBytes) {
  // Room for kAllowed and for all but a byte of one more.
  StartWith("pinned_bytes: " + std::to_string((kAllowed + 1) * 3 * kPage - 1));
  RaceRegistrations(3 * kPage, v1::QUOTA_BYTES);
}

TEST_P(RacingLimitsTest, Sessions) {
  // Those of the fixture count, the admin's does not.
  StartWith("sessions: " + std::to_string(kAllowed + kSessions));
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::unique_ptr<AttachSocket>> sockets(kRacers);
    ASSERT_EQ(Race([&](int i) {
                sockets[i] = std::make_unique<AttachSocket>(dir() + "/attach.sock");
                if (!sockets[i]->SendHello()) return false;
                const auto packet = sockets[i]->Receive();
                if (packet && packet->has_welcome()) return true;
                v1::ErrorDetail detail;
                EXPECT_TRUE(packet && packet->has_refusal() &&
                            detail.ParseFromString(packet->refusal().detail()));
                EXPECT_EQ(detail.reason(), v1::QUOTA_SESSIONS) << detail.ShortDebugString();
                return false;
              }),
              kAllowed)
        << "in round " << round;
    ASSERT_EQ(Look().sessions, static_cast<uint64_t>(kAllowed + kSessions + 1));
    sockets.clear();
    ASSERT_TRUE(WaitUntil(kPatience,
                          [&] { return Look().sessions == static_cast<uint64_t>(kSessions + 1); }));
  }
}

TEST_P(RacingLimitsTest, Endpoints) {
  StartWith("endpoints: " + std::to_string(kAllowed));
  for (int round = 0; round < kRounds; ++round) {
    std::vector<uint64_t> endpoints(kRacers);
    ASSERT_EQ(Race([&](int i) {
                const auto made = clients_[i % kSessions]->Listen(address());
                if (!made.ok()) {
                  EXPECT_EQ(made.reason(), v1::QUOTA_ENDPOINTS) << made.text();
                  return false;
                }
                endpoints[i] = made.response.endpoint().endpoint_id();
                return true;
              }),
              kAllowed)
        << "in round " << round;
    ASSERT_EQ(Look().endpoints, static_cast<uint64_t>(kAllowed));
    ASSERT_EQ(Race([&](int i) {
                return endpoints[i] != 0 && clients_[i % kSessions]->Disconnect(endpoints[i]).ok();
              }),
              kAllowed);
  }
}

}  // namespace
}  // namespace mrd::e2e
