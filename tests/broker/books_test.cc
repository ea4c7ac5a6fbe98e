#include "daemon/broker/books.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

TEST(Books, RefuseWhatWouldPassALimitAndSayWhich) {
  Limits limits;
  limits.pinned_bytes = 100;
  Books books(limits);
  ASSERT_TRUE(books.Book(7, {.regions = 1, .bytes = 60}).ok());
  const auto refusal = books.Book(7, {.regions = 1, .bytes = 41});
  EXPECT_EQ(ReasonOf(refusal), v1::QUOTA_BYTES);
  const auto detail = DetailOf(refusal);
  EXPECT_EQ(detail->limit(), 100u);
  EXPECT_EQ(detail->used(), 60u);
  EXPECT_EQ(detail->limit_name(), "pinned bytes of uid 7");
  EXPECT_FALSE(detail->advice().empty());
}

TEST(Books, EnterAllOfItOrNothing) {
  Limits limits;
  limits.pinned_bytes = 100;
  Books books(limits);
  EXPECT_FALSE(books.Book(7, {.regions = 5, .bytes = 101}).ok());
  EXPECT_EQ(books.Used(7), Amounts{});
  EXPECT_EQ(books.Total(), Amounts{});
}

TEST(Books, CountEachUidByItself) {
  Limits limits;
  limits.sessions = 1;
  Books books(limits);
  EXPECT_TRUE(books.Book(1, {.sessions = 1}).ok());
  EXPECT_TRUE(books.Book(2, {.sessions = 1}).ok());
  EXPECT_EQ(ReasonOf(books.Book(1, {.sessions = 1})), v1::QUOTA_SESSIONS);
  books.Release(1, {.sessions = 1});
  EXPECT_TRUE(books.Book(1, {.sessions = 1}).ok());
}

TEST(Books, AnAmountThatOverflowsIsRefused) {
  Limits limits;
  limits.pinned_bytes = 1 << 30;
  Books books(limits);
  ASSERT_TRUE(books.Book(1, {.bytes = 1}).ok());
  EXPECT_EQ(ReasonOf(books.Book(1, {.bytes = UINT64_MAX})), v1::QUOTA_BYTES);
}

TEST(Books, RacingCallsNeverPassALimitTogether) {
  Limits limits;
  limits.endpoints = 100;
  Books books(limits);
  std::atomic<int> booked = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 64; ++n) booked += books.Book(1, {.endpoints = 1}).ok();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(booked, 100);
}

}  // namespace
}  // namespace mrd::broker
