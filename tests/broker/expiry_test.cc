#include "daemon/broker/expiry.h"

#include <gtest/gtest.h>

#include "daemon/broker/lease_clock.h"

namespace mrd::broker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ExpiriesTest : public testing::Test {
 protected:
  Lease& Add(uint64_t id, seconds ttl) {
    Lease& lease = *leases_.emplace_back(std::make_unique<Lease>());
    lease.view.id = id;
    lease.ttl = ttl;
    expiries_.Add(lease, now_);
    return lease;
  }

  std::vector<std::unique_ptr<Lease>> leases_;
  Expiries expiries_;
  Expiries::Clock::time_point now_{};
};

TEST_F(ExpiriesTest, LapseInTheOrderOfTheirTime) {
  Add(1, seconds(3));
  Add(2, seconds(1));
  EXPECT_EQ(expiries_.next(), now_ + seconds(1));
  EXPECT_EQ(expiries_.shortest_ttl(), seconds(1));
  EXPECT_TRUE(expiries_.Lapsed(now_ + milliseconds(999), 10).empty());
  EXPECT_EQ(expiries_.Lapsed(now_ + seconds(1), 10), (std::vector<uint64_t>{2}));
  EXPECT_EQ(expiries_.Lapsed(now_ + seconds(3), 10), (std::vector<uint64_t>{2, 1}));
}

TEST_F(ExpiriesTest, RenewingAllRenewsThoseThatCameBeforeAndNoOthersLess) {
  Lease& first = Add(1, seconds(2));
  now_ += seconds(1);
  expiries_.RenewAll(now_);
  now_ += milliseconds(500);
  Lease& second = Add(2, seconds(2));
  EXPECT_EQ(expiries_.Remaining(first, now_), milliseconds(1500));
  EXPECT_EQ(expiries_.Remaining(second, now_), seconds(2));
  EXPECT_TRUE(expiries_.Lapsed(now_ + milliseconds(1499), 10).empty());
  EXPECT_EQ(expiries_.next(), now_ + milliseconds(1500));
  EXPECT_EQ(expiries_.Lapsed(now_ + milliseconds(1500), 10), (std::vector<uint64_t>{1}));
}

TEST_F(ExpiriesTest, RenewsOne) {
  Lease& first = Add(1, seconds(2));
  Add(2, seconds(2));
  expiries_.Renew(first, now_ + seconds(1));
  EXPECT_EQ(expiries_.Lapsed(now_ + seconds(2), 10), (std::vector<uint64_t>{2}));
}

TEST_F(ExpiriesTest, LooksAtNoMoreThanItIsToldAtOnce) {
  for (uint64_t id = 1; id <= 5; ++id) Add(id, seconds(1));
  EXPECT_EQ(expiries_.Lapsed(now_ + seconds(1), 2).size(), 2u);
  EXPECT_LE(*expiries_.next(), now_ + seconds(1)) << "to be called again at once";
  for (const auto& lease : leases_) expiries_.Renew(*lease, now_ + milliseconds(500));
  EXPECT_TRUE(expiries_.Lapsed(now_ + seconds(1), 3).empty());
  EXPECT_EQ(*expiries_.next(), now_ + seconds(1)) << "two of them are still where they were";
}

TEST_F(ExpiriesTest, ARenewalOfAllMakesThemAllWaitForTheShortestTtl) {
  for (uint64_t id = 1; id <= 5; ++id) Add(id, seconds(1));
  Add(6, seconds(3));
  for (int i = 1; i <= 20; ++i) {
    expiries_.RenewAll(now_ + milliseconds(500 * i));
    EXPECT_EQ(*expiries_.next(), now_ + milliseconds(500 * i) + seconds(1))
        << "none is looked at while they are renewed";
  }
  EXPECT_EQ(expiries_.Lapsed(now_ + seconds(11), 10).size(), 5u);
}

TEST_F(ExpiriesTest, ForgetsWhatIsRemoved) {
  Lease& first = Add(1, seconds(2));
  Add(2, seconds(9));
  expiries_.RenewAll(now_ + seconds(1));
  expiries_.Renew(first, now_ + seconds(2));
  EXPECT_TRUE(expiries_.Lapsed(now_ + seconds(3), 10).empty());  // Put back at another time.
  expiries_.Remove(first);
  EXPECT_EQ(expiries_.size(), 1u);
  EXPECT_EQ(expiries_.shortest_ttl(), seconds(9));
  EXPECT_EQ(expiries_.next(), now_ + seconds(10)) << "it was renewed with all";
}

TEST(LeaseClockTest, HasOneEntryASessionTheEarliest) {
  LeaseClock clock;
  int woken = 0;
  clock.SetWake([&] { ++woken; });
  const LeaseClock::Clock::time_point start{};
  EXPECT_FALSE(clock.next());
  clock.Watch(1, start + seconds(5));
  clock.Watch(1, start + seconds(7));
  EXPECT_EQ(woken, 1);
  clock.Watch(2, start + seconds(6));
  EXPECT_EQ(woken, 1) << "not the next one";
  clock.Watch(1, start + seconds(3));
  EXPECT_EQ(woken, 2);
  EXPECT_EQ(clock.TakeDue(start + seconds(6)), (std::vector<uint64_t>{1, 2}));
  EXPECT_FALSE(clock.next());
  clock.Watch(3, start);
  clock.Forget(3);
  clock.Forget(4);
  EXPECT_TRUE(clock.TakeDue(start + seconds(9)).empty());
}

}  // namespace
}  // namespace mrd::broker
