#include "daemon/broker/request_log.h"

#include <gtest/gtest.h>

namespace mrd::broker {
namespace {

std::shared_ptr<RequestRecord> Answered(RequestLog& log, const std::string& id, size_t leases) {
  auto record = log.Begin(id, 1);
  log.Answer(record, std::make_shared<const LeaseViews>(leases));
  return record;
}

TEST(RequestLog, RemembersARequestWhileItsLeasesLive) {
  RequestLog log;
  const auto record = Answered(log, "a", 2);
  for (int i = 0; i < 2000; ++i) {
    const auto other = Answered(log, "other" + std::to_string(i), 1);
    log.LeaseEnded(other);
  }
  log.LeaseEnded(record);
  EXPECT_EQ(log.Find("a"), record);
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

TEST(RequestLog, ForgetsARefusedRequestAndNamesThoseThatWaited) {
  RequestLog log;
  const auto record = log.Begin("a", 1);
  record->waiters.push_back([](RegisterResult) {});
  EXPECT_EQ(log.Refuse(record).size(), 1u);
  EXPECT_EQ(log.Find("a"), nullptr);
}

}  // namespace
}  // namespace mrd::broker
