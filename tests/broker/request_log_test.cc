#include "daemon/broker/request_log.h"

#include <gtest/gtest.h>

namespace mrd::broker {
namespace {

RequestRecord& Answered(RequestLog& log, const std::string& id, size_t leases) {
  RequestRecord& record = *log.Begin(id, 1);
  log.Answer(record, LeaseViews(leases));
  return record;
}

TEST(RequestLog, RemembersARequestWhileItsLeasesLive) {
  RequestLog log;
  RequestRecord& record = Answered(log, "a", 2);
  for (int i = 0; i < 2000; ++i) {
    RequestRecord& other = Answered(log, "other" + std::to_string(i), 1);
    log.LeaseEnded(other);
  }
  log.LeaseEnded(record);
  EXPECT_EQ(log.Find("a"), &record);
}

TEST(RequestLog, ForgetsAfterAThousandLaterOnesHaveEnded) {
  RequestLog log;
  log.LeaseEnded(Answered(log, "a", 1));
  for (size_t i = 0; i < RequestLog::kMostEnded - 1; ++i) {
    log.LeaseEnded(Answered(log, std::to_string(i), 1));
  }
  EXPECT_NE(log.Find("a"), nullptr);
  log.LeaseEnded(Answered(log, "last", 1));
  EXPECT_EQ(log.Find("a"), nullptr);
  EXPECT_NE(log.Find("last"), nullptr);
}

// Otherwise a client that registers many and ends all but one, again and again, fills the memory.
TEST(RequestLog, RemembersNoMoreAnswersThanItsLeasesAreWorth) {
  RequestLog log;
  RequestRecord& small = Answered(log, "small", 1);
  log.LeaseEnded(small);
  std::vector<RequestRecord*> records;
  for (int i = 0; i < 3; ++i) {
    records.push_back(&Answered(log, std::to_string(i), RequestLog::kMostViews));
    for (size_t k = 1; k < RequestLog::kMostViews; ++k) log.LeaseEnded(*records.back());
  }
  EXPECT_EQ(log.Find("small"), nullptr);
  EXPECT_EQ(log.Find("0"), nullptr);
  EXPECT_EQ(log.Find("1"), nullptr);
  EXPECT_EQ(log.Find("2"), records[2]);
  for (RequestRecord* const record : records) log.LeaseEnded(*record);  // Forgotten ones too.
  EXPECT_EQ(log.Find("2"), records[2]);
}

TEST(RequestLog, KeepsOfAnAnswerWhatItsSessionNoLongerHas) {
  RequestLog log;
  RequestRecord& record = *log.Begin("a", 1);
  LeaseViews views(2);
  views[0].id = 7;
  views[1].id = 8;
  log.Answer(record, views);
  EXPECT_TRUE(record.ended.empty());
  // One that would not end, however often that is tried, is kept once.
  for (int i = 0; i < 3; ++i) {
    log.LeaseTaken(record, views[0]);
    log.LeasePutBack(record, 7);
  }
  EXPECT_TRUE(record.ended.empty());
  log.LeaseTaken(record, views[1]);
  log.LeaseEnded(record);
  ASSERT_FALSE(record.ended.empty());
  EXPECT_EQ(record.ended.front().id, 8u);
  EXPECT_EQ(log.Find("a"), &record);
}

TEST(RequestLog, ForgetsARefusedRequestAndNamesThoseThatWaited) {
  RequestLog log;
  RequestRecord& record = *log.Begin("a", 1);
  record.waiters.push_front({[](RegisterResult) {}, {}, {}});
  EXPECT_FALSE(log.Refuse(record).empty());
  EXPECT_EQ(log.Find("a"), nullptr);
}

}  // namespace
}  // namespace mrd::broker
