// Which rule applies to whom, and over what its limits count.
#include <gtest/gtest.h>

#include "daemon/broker/policy/parse.h"
#include "daemon/broker/policy/policy.h"

namespace mrd::policy {
namespace {

Policy From(const std::string& text) {
  Parsed parsed = Parse(text);
  EXPECT_TRUE(parsed.ok()) << ToString("f", parsed.problems[0]);
  return Policy(parsed.policy, broker::Limits(), Policy::Unbounded());
}

std::string RuleOf(const Policy& policy, const Subject& subject) {
  return policy.Find(subject).terms->rule;
}

TEST(Find, TheFirstThatMatchesApplies) {
  const Policy policy = From(R"(
    rules { name: "ten" uid: 10 limits { sessions: 1 } }
    rules { name: "range" uid_range { first: 5 last: 15 } }
    rules { name: "group" gid: 100 }
    rules { name: "rest" })");
  EXPECT_EQ(RuleOf(policy, {.uid = 10}), "ten");
  EXPECT_EQ(RuleOf(policy, {.uid = 5}), "range");
  EXPECT_EQ(RuleOf(policy, {.uid = 15}), "range");
  EXPECT_EQ(RuleOf(policy, {.uid = 16}), "rest");
  EXPECT_EQ(RuleOf(policy, {.uid = 16, .gids = {7, 100}}), "group") << "a supplementary group";
  EXPECT_EQ(policy.Find({.uid = 10}).terms->limits.sessions, 1u);
  EXPECT_EQ(policy.Find({.uid = 10}).terms->limits.regions, broker::Limits().regions);
  EXPECT_EQ(policy.Find({.uid = 5}).account, "uid 5") << "each uid of a range for itself";
}

TEST(Find, WhereNoneMatchesTheBuiltInDefaultsApply) {
  const Policy policy = From("rules { name: \"a\" uid: 1 unsealed: true }");
  const Match match = policy.Find({.uid = 2});
  EXPECT_EQ(match.terms->rule, "");
  EXPECT_FALSE(match.terms->unsealed);
  EXPECT_GT(match.terms->limits.pinned_bytes, 0u) << "half of the memory";
  EXPECT_EQ(match.account, "uid 2");
}

TEST(Find, AllThatARuleNamesMustMatch) {
  const Policy policy = From("rules { name: \"a\" uid: 1 gid: 2 cgroup: \"/x\" }");
  EXPECT_EQ(RuleOf(policy, {.uid = 1, .gids = {2}, .cgroup = "/x/y"}), "a");
  EXPECT_EQ(RuleOf(policy, {.uid = 9, .gids = {2}, .cgroup = "/x/y"}), "");
  EXPECT_EQ(RuleOf(policy, {.uid = 1, .gids = {3}, .cgroup = "/x/y"}), "");
  EXPECT_EQ(RuleOf(policy, {.uid = 1, .gids = {2}, .cgroup = "/y"}), "");
}

TEST(Find, ACgroupIsCountedAtThePatternSoThatOnesBelowGainNothing) {
  const Policy policy = From("rules { name: \"pods\" cgroup: \"/kube/*\" }");
  EXPECT_EQ(policy.Find({.uid = 1, .cgroup = "/kube/pod1"}).account, "cgroup /kube/pod1");
  EXPECT_EQ(policy.Find({.uid = 2, .cgroup = "/kube/pod1/mine/deep"}).account, "cgroup /kube/pod1");
  EXPECT_EQ(policy.Find({.uid = 1, .cgroup = "/kube/pod2"}).account, "cgroup /kube/pod2");
  EXPECT_EQ(policy.Find({.uid = 1, .cgroup = "/kube"}).account, "uid 1");
}

TEST(Find, WhatTheDaemonBoundsByUserCountsAsTheLimitsDo) {
  const Policy policy = From("rules { name: \"pods\" cgroup: \"/kube/*\" }");
  const auto user = [&](const Subject& subject) { return policy.Find(subject).user; };
  EXPECT_EQ(user({.uid = 5}), 5u);
  const uint32_t pod1 = user({.uid = 0, .cgroup = "/kube/pod1"});
  EXPECT_NE(pod1, 0u) << "a pod's uid 0 is not the host's";
  EXPECT_NE(pod1, user({.uid = 0, .cgroup = "/kube/pod2"}));
  EXPECT_EQ(pod1, user({.uid = 7, .cgroup = "/kube/pod1/mine"}));
  EXPECT_EQ(user({.uid = 0, .cgroup = "/kube/pod1", .admin = true}), kAdmins);
  EXPECT_EQ(policy.Find({.uid = 0, .admin = true}).account, "admins");
}

TEST(Find, TheWidestPatternOfARuleCounts) {
  const Policy policy = From("rules { name: \"a\" cgroup: \"/k/x/*\" cgroup: \"/k/x\" }");
  EXPECT_EQ(policy.Find({.uid = 1, .cgroup = "/k/x/y"}).account, "cgroup /k/x");
}

TEST(Find, AHiddenPidMatchesNoCgroupRule) {
  const Policy policy = From("rules { name: \"a\" cgroup: \"/\" } rules { name: \"b\" }");
  EXPECT_EQ(RuleOf(policy, {.uid = 1, .cgroup = ""}), "b");
  EXPECT_EQ(RuleOf(policy, {.uid = 1, .cgroup = "/"}), "a");
}

TEST(Find, TheOverflowUidIsNotGrantedWhatWasMeantForOthers) {
  const Policy grants = From(R"(
    rules { name: "range" uid_range { first: 0 last: 4294967295 } gid: 5 unsealed: true }
    rules { name: "all" unsealed: true })");
  EXPECT_EQ(RuleOf(grants, {.uid = 65534, .gids = {5}}), "");
  EXPECT_EQ(RuleOf(grants, {.uid = 65533, .gids = {5}}), "range");
  EXPECT_EQ(RuleOf(grants, {.uid = 65535}), "all");
  EXPECT_EQ(RuleOf(From("rules { name: \"n\" uid: [1, 65534] }"), {.uid = 65534}), "n");
  const Policy groups = From("rules { name: \"g\" gid_range { first: 65000 last: 66000 } }");
  EXPECT_EQ(RuleOf(groups, {.uid = 1, .gids = {65534}}), "");
  EXPECT_EQ(RuleOf(groups, {.uid = 1, .gids = {65533}}), "g");
}

TEST(Find, TheOverflowUidIsDeniedWithTheRest) {
  EXPECT_EQ(RuleOf(From("rules { name: \"d\" deny: true }"), {.uid = 65534}), "d");
  EXPECT_EQ(RuleOf(From("rules { name: \"d\" deny: true uid_range { first: 1 last: 70000 } }"),
                   {.uid = 65534}),
            "d");
  EXPECT_EQ(RuleOf(From("rules { name: \"d\" deny: true uid_range { first: 1 last: 60000 } }"),
                   {.uid = 65534}),
            "");
}

TEST(Find, NoRuleGivesMoreThanTheProcessCanHold) {
  broker::Limits ceiling = Policy::Unbounded();
  ceiling.sessions = 40;
  const Policy policy(Parse("rules { name: \"a\" limits { sessions: 5000 regions: 7 } }").policy,
                      broker::Limits(), ceiling);
  EXPECT_EQ(policy.Find({.uid = 1}).terms->limits.sessions, 40u);
  EXPECT_EQ(policy.Find({.uid = 1}).terms->limits.regions, 7u);
}

TEST(ChangesTo, SaysWhatChanged) {
  const Policy before = From(
      "rules { name: \"a\" uid: 1 } rules { name: \"b\" uid: 2 }"
      "rules { name: \"c\" uid: 3 }");
  EXPECT_EQ(before.ChangesTo(before), "nothing changed");
  EXPECT_EQ(before.ChangesTo(From("rules { name: \"c\" uid: 3 } rules { name: \"a\" uid: 9 }"
                                  "rules { name: \"d\" uid: 2 }")),
            "added d; removed b; changed a; another order");
}

}  // namespace
}  // namespace mrd::policy
