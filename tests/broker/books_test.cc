#include "daemon/broker/books.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "daemon/broker/policy/parse.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

policy::PolicyRef PolicyOf(const std::string& text) {
  policy::Parsed parsed = policy::Parse(text);
  EXPECT_TRUE(parsed.ok()) << policy::ToString("f", parsed.problems[0]);
  return std::make_shared<const policy::Policy>(parsed.policy, Limits(),
                                                policy::Policy::Unbounded());
}

TEST(Books, RefuseWhatWouldPassALimitAndSayWhich) {
  Limits limits;
  limits.pinned_bytes = 100;
  Books books(limits);
  const HolderRef holder = books.Join({.uid = 7});
  ASSERT_TRUE(books.Book(*holder, {.regions = 1, .bytes = 60}).ok());
  const auto refusal = books.Book(*holder, {.regions = 1, .bytes = 41});
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
  const HolderRef holder = books.Join({.uid = 7});
  EXPECT_FALSE(books.Book(*holder, {.regions = 5, .bytes = 101}).ok());
  EXPECT_EQ(books.Used(7), Amounts{});
  EXPECT_EQ(books.Total(), Amounts{});
}

TEST(Books, CountEachUidByItself) {
  Limits limits;
  limits.sessions = 1;
  Books books(limits);
  const HolderRef one = books.Join({.uid = 1});
  const HolderRef another_of_one = books.Join({.uid = 1});
  const HolderRef two = books.Join({.uid = 2});
  EXPECT_TRUE(books.Book(*one, {.sessions = 1}).ok());
  EXPECT_TRUE(books.Book(*two, {.sessions = 1}).ok());
  EXPECT_EQ(ReasonOf(books.Book(*another_of_one, {.sessions = 1})), v1::QUOTA_SESSIONS);
  books.Release(*one, {.sessions = 1});
  EXPECT_TRUE(books.Book(*another_of_one, {.sessions = 1}).ok());
}

TEST(Books, AnAmountThatOverflowsIsRefused) {
  Limits limits;
  limits.pinned_bytes = 1 << 30;
  Books books(limits);
  const HolderRef holder = books.Join({.uid = 1});
  ASSERT_TRUE(books.Book(*holder, {.bytes = 1}).ok());
  EXPECT_EQ(ReasonOf(books.Book(*holder, {.bytes = UINT64_MAX})), v1::QUOTA_BYTES);
}

TEST(Books, SixtyFourRacingCallsNeverPassALimitTogether) {
  Limits limits;
  limits.endpoints = 100;
  Books books(limits);
  std::atomic<bool> go = false;
  std::atomic<int> booked = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 64; ++i) {
    threads.emplace_back([&] {
      const HolderRef holder = books.Join({.uid = 1});
      while (!go) std::this_thread::yield();
      for (int n = 0; n < 16; ++n) booked += books.Book(*holder, {.endpoints = 1}).ok();
    });
  }
  go = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(booked, 100);
  EXPECT_EQ(books.Used(1).endpoints, 100u) << "what is booked outlives its holder";
}

TEST(Books, ACgroupIsOneAccountWhoeverIsInIt) {
  Books books{Limits()};
  books.SetPolicy(PolicyOf("rules { name: \"pods\" cgroup: \"/k/*\" limits { regions: 3 } }"));
  const HolderRef one = books.Join({.uid = 1, .cgroup = "/k/pod"});
  const HolderRef two = books.Join({.uid = 2, .cgroup = "/k/pod/below"});
  const HolderRef other = books.Join({.uid = 1, .cgroup = "/k/other"});
  const HolderRef outside = books.Join({.uid = 1, .cgroup = "/user.slice"});
  ASSERT_TRUE(books.Book(*one, {.regions = 2}).ok());
  const auto refusal = books.Book(*two, {.regions = 2});
  EXPECT_EQ(ReasonOf(refusal), v1::QUOTA_REGIONS);
  EXPECT_EQ(DetailOf(refusal)->limit_name(), "regions of cgroup /k/pod");
  EXPECT_NE(std::string(refusal.message()).find("rule \"pods\""), std::string::npos);
  EXPECT_TRUE(books.Book(*two, {.regions = 1}).ok());
  EXPECT_TRUE(books.Book(*other, {.regions = 3}).ok());
  EXPECT_TRUE(books.Book(*outside, {.regions = 4}).ok());
  EXPECT_EQ(books.Used("cgroup /k/pod").regions, 3u);
  EXPECT_EQ(books.Used(1).regions, 4u) << "what a cgroup has is not the uid's too";
  EXPECT_EQ(books.Total().regions, 10u);
}

TEST(Books, ANewPolicyMovesWhatIsBookedAndEndsNothing) {
  Books books{Limits()};
  const HolderRef holder = books.Join({.uid = 1, .cgroup = "/k/pod"});
  ASSERT_TRUE(books.Book(*holder, {.sessions = 1, .regions = 5}).ok());
  EXPECT_EQ(
      books.SetPolicy(PolicyOf("rules { name: \"p\" cgroup: \"/k/*\" limits { regions: 3 } }")),
      1u);
  EXPECT_EQ(holder->account(), "cgroup /k/pod");
  EXPECT_EQ(books.Used("cgroup /k/pod").regions, 5u);
  EXPECT_EQ(books.Used(1), Amounts{});
  const auto refusal = books.Book(*holder, {.regions = 1});
  EXPECT_EQ(DetailOf(refusal)->limit(), 3u);
  EXPECT_EQ(DetailOf(refusal)->used(), 5u) << "above the limit; what stands stays";
  books.Release(*holder, {.regions = 3});
  EXPECT_TRUE(books.Book(*holder, {.regions = 1}).ok()) << "below it again";
  EXPECT_EQ(books.SetPolicy(PolicyOf("")), 1u);
  EXPECT_EQ(books.SetPolicy(PolicyOf("")), 0u) << "the same again";
  EXPECT_EQ(books.Used("cgroup /k/pod"), Amounts{});
  books.Release(*holder, {.sessions = 1, .regions = 3});
  EXPECT_EQ(books.Total(), Amounts{});
}

TEST(Books, WhoIsDeniedGetsNothingMoreButForAdminsAndConnections) {
  Books books{Limits()};
  const HolderRef holder = books.Join({.uid = 1});
  ASSERT_TRUE(books.Book(*holder, {.sessions = 1, .regions = 1}).ok());
  books.SetPolicy(PolicyOf("rules { name: \"out\" deny: true }"));
  const auto refusal = books.Book(*holder, {.regions = 1});
  EXPECT_EQ(ReasonOf(refusal), v1::POLICY_DENIED);
  EXPECT_NE(std::string(refusal.message()).find("rule \"out\""), std::string::npos);
  EXPECT_TRUE(books.Book(*holder, {.connections = 1}).ok());
  EXPECT_TRUE(books.Book(*books.Join({.uid = 1, .admin = true}), {.sessions = 1}).ok());
  EXPECT_EQ(books.Used(1).regions, 1u) << "what stands stays";
}

// Policies come while sessions book, release, come and go: nothing is lost or counted twice.
TEST(Books, AgreeWithWhatIsHeldWhilePoliciesComeAndGo) {
  Books books{Limits()};
  const policy::PolicyRef policies[] = {
      PolicyOf("rules { name: \"p\" cgroup: \"/k/*\" limits { regions: 50 } }"),
      PolicyOf("rules { name: \"u\" uid: 1 limits { regions: 40 } }"),
      PolicyOf("rules { name: \"k\" cgroup: \"/k\" limits { regions: 60 } }")};
  std::atomic<bool> over = false;
  std::atomic<uint64_t> kept = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      std::mt19937 random(i);
      for (int round = 0; round < 200; ++round) {
        const HolderRef holder = books.Join(
            {.uid = uint32_t(random() % 2), .cgroup = random() % 2 == 0 ? "/k/a" : "/k/b"});
        uint64_t held = 0;
        for (int n = 0; n < 20; ++n) {
          const Amounts some{.regions = 1 + random() % 3};
          if (books.Book(*holder, some).ok()) held += some.regions;
          if (held > 0 && random() % 2 == 0) {
            books.Release(*holder, {.regions = 1});
            --held;
          }
        }
        if (round % 100 != 99) {
          books.Release(*holder, {.regions = held});
        } else {
          kept += held;
        }
      }
    });
  }
  std::thread setter([&] {
    for (int i = 0; !over; ++i) books.SetPolicy(policies[i % 3]);
  });
  for (std::thread& thread : threads) thread.join();
  over = true;
  setter.join();
  EXPECT_EQ(books.Total().regions, kept);
  uint64_t in_accounts = 0;
  for (const char* account : {"uid 0", "uid 1", "cgroup /k", "cgroup /k/a", "cgroup /k/b"}) {
    in_accounts += books.Used(account).regions;
  }
  EXPECT_EQ(in_accounts, kept);
}

TEST(Books, UsersTogetherLeaveDescriptorsToTheOperator) {
  Limits limits;
  limits.descriptors = 10;
  Books books(limits);
  const auto one = books.Join({.uid = 1});
  const auto other = books.Join({.uid = 2});
  const auto admin = books.Join({.uid = 0, .admin = true});
  ASSERT_TRUE(books.Book(*one, {.sessions = 1, .connections = 1, .buffers = 3}).ok());
  ASSERT_TRUE(books.Book(*other, {.sessions = 1}).ok());
  const auto refused = books.Book(*other, {.connections = 1});
  EXPECT_EQ(ReasonOf(refused), v1::QUOTA_SESSIONS);
  EXPECT_EQ(DetailOf(refused)->limit(), 10u);
  EXPECT_EQ(DetailOf(refused)->used(), 9u);
  EXPECT_TRUE(books.Book(*other, {.buffers = 1}).ok());
  EXPECT_EQ(ReasonOf(books.Book(*other, {.buffers = 1})), v1::QUOTA_BUFFERS);
  EXPECT_TRUE(books.Book(*other, {.regions = 1}).ok()) << "needs none";
  EXPECT_TRUE(books.Book(*admin, {.sessions = 1, .connections = 1}).ok());
}

}  // namespace
}  // namespace mrd::broker
