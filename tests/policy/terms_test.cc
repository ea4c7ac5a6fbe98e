#include "daemon/broker/policy/terms.h"

#include <gtest/gtest.h>

#include "mrd/v1/status.h"

namespace mrd::policy {
namespace {

using fabric::Bit;
using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(ClampTtl, WithoutBoundsALeaseMayLastAsLongAsItsSession) {
  const Terms terms;
  EXPECT_EQ(terms.ClampTtl(nanoseconds(0)), nanoseconds(0));
  EXPECT_EQ(terms.ClampTtl(seconds(30)), seconds(30));
  EXPECT_EQ(terms.ClampTtl(nanoseconds(1)), seconds(1));
  EXPECT_EQ(terms.ClampTtl(nanoseconds::max()), kMostTtl) << "292 years";
}

TEST(ClampTtl, ItIsKeptWithinTheRulesBounds) {
  Terms terms;
  terms.ttl = {.min = seconds(5), .max = seconds(60), .when_unasked = std::nullopt};
  EXPECT_EQ(terms.ClampTtl(nanoseconds(0)), seconds(60)) << "the session could last for ever";
  EXPECT_EQ(terms.ClampTtl(seconds(1)), seconds(5));
  EXPECT_EQ(terms.ClampTtl(hours(1)), seconds(60));
  terms.ttl.when_unasked = seconds(20);
  EXPECT_EQ(terms.ClampTtl(nanoseconds(0)), seconds(20));
  EXPECT_EQ(terms.ClampTtl(seconds(30)), seconds(30));
}

void ExpectDenied(const absl::Status& status, const std::string& what) {
  EXPECT_EQ(ReasonOf(status), v1::POLICY_DENIED);
  const std::string message(status.message());
  EXPECT_NE(message.find("rule \"batch\""), std::string::npos) << message;
  EXPECT_NE(message.find(what), std::string::npos) << message;
  EXPECT_FALSE(DetailOf(status)->advice().empty());
}

TEST(Terms, WhatIsNotAllowedIsRefusedWithTheRulesName) {
  Terms terms;
  terms.rule = "batch";
  EXPECT_TRUE(terms.CheckRegistration({"anything"}, kAllAccess).ok());
  EXPECT_TRUE(terms.CheckNamedDomain().ok());
  EXPECT_TRUE(terms.CheckNotDenied().ok());
  terms.devices = {"mlx5_*", "rxe0"};
  terms.access = Bit(v1::LOCAL_WRITE) | Bit(v1::REMOTE_READ);
  terms.named_domains = false;
  terms.deny = true;
  EXPECT_TRUE(terms.CheckRegistration({"mlx5_7", "rxe0"}, Bit(v1::LOCAL_WRITE)).ok());
  ExpectDenied(terms.CheckRegistration({"mlx5_7", "rxe1"}, Bit(v1::LOCAL_WRITE)), "rxe1");
  ExpectDenied(terms.CheckRegistration({"rxe0"}, Bit(v1::LOCAL_WRITE) | Bit(v1::REMOTE_WRITE)),
               "REMOTE_WRITE");
  ExpectDenied(terms.CheckNamedDomain(), "named_domains");
  ExpectDenied(terms.CheckNotDenied(), "refused");
}

}  // namespace
}  // namespace mrd::policy
