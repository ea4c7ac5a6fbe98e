#include "daemon/broker/policy/parse.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "daemon/broker/policy/file.h"
#include "daemon/broker/policy/policy.h"

namespace mrd::policy {
namespace {

using testing::HasSubstr;

// The first problem of this text.
std::string FirstOf(const std::string& text) {
  const Parsed parsed = Parse(text);
  return parsed.ok() ? "none" : ToString("f", parsed.problems.front());
}

TEST(Parse, AGoodPolicyIsTaken) {
  const Parsed parsed = Parse(R"(
    # Comments are allowed.
    rules { name: "a" uid: [1, 2] uid_range { first: 10 last: 20 } gid: 5
            limits { sessions: 3 pinned_bytes: 0 } ttl { max { seconds: 60 } }
            devices: "mlx5_*" access: [LOCAL_WRITE, REMOTE_READ] unsealed: true }
    rules { name: "b" cgroup: "/kubepods.slice/*" }
    rules { name: "c" deny: true })");
  ASSERT_TRUE(parsed.ok()) << ToString("f", parsed.problems[0]);
  EXPECT_EQ(parsed.policy.rules_size(), 3);
  EXPECT_TRUE(parsed.notes.empty());
  EXPECT_TRUE(Parse("").ok()) << "no rules";
}

TEST(Parse, EveryErrorHasItsLineAndColumn) {
  const struct {
    const char* text;
    const char* says;
  } bad[] = {
      {"rules { name: \"a\" }\nrules { nmae: \"b\" }", "f:2:9: "},
      {"rules { name: \"a\"\n limits { sessions: -1 } }", "f:2:21: "},
      {"rules { name: \"a\"\n limits { sessions: 18446744073709551616 } }", "f:2:21: "},
      {"rules { name: \"a\"\n uid: 4294967296 }", "f:2:7: "},
      {"rules { name: \"a\"\n uid: -1 }", "f:2:7: "},
      {"rules { name: \"a\" name: \"b\" }", "f:1:"},
      {"rules { name: \"a\"\n access: READ }", "f:2:10: "},
      {"rules { name: \"a\"\n access: ACCESS_FLAG_UNSPECIFIED }", "f:2:2: this is no access flag"},
      {"rules { name: \"a\"\n cgroup: \"/a/*\n}", "f:2:"},
      {"rules { name: \"a\"\n", "f:2:"},
      {"rules {\n uid: 1 }", "f:1:1: the rule has no name"},
      {"rules {\n name: \"a\\n\" }", "f:2:2: the name has control"},
      {"rules {\n name: \"\\377\" }", "f:2:2: the name has control"},
      {"rules {\n name: \"a\"\n limits { sessions: 0 } }", "f:3:11: sessions must be at least 1"},
      {"rules {\n name: \"a\"\n limits { calls_per_session: 257 } }", "f:3:11: calls_per_session"},
      {"rules {\n name: \"a\"\n uid_range { first: 2 last: 1 } }", "f:3:2: first (2) is above"},
      {"rules {\n name: \"a\"\n cgroup: \"a\" }", "f:3:2: pattern \"a\": a cgroup begins"},
      {"rules {\n name: \"a\"\n cgroup: \"/[a\" }", "f:3:2: pattern \"/[a\": '['"},
      {"rules {\n name: \"a\"\n cgroup: \"/\\n\" }", "f:3:2: pattern \"/?\": it has control"},
      {"rules {\n name: \"a\"\n devices: \"a/b\" }", "f:3:2: pattern \"a/b\""},
      {"rules {\n name: \"a\"\n access: REMOTE_WRITE }", "f:3:2: REMOTE_WRITE and"},
      {"rules {\n name: \"a\"\n deny: true devices: \"x\" }", "f:3:2: the rule denies"},
      {"rules {\n name: \"a\"\n ttl { min { seconds: 9 }\n max { seconds: 8 } } }",
       "f:4:2: max is below min"},
      {"rules {\n name: \"a\"\n ttl { max { nanos: 1 } } }", "f:3:8: max is below min (1 second"},
      {"rules {\n name: \"a\"\n ttl { max { seconds: 9 } default { seconds: 10 } } }",
       "f:3:27: default is above max"},
      {"rules {\n name: \"a\"\n ttl { max { seconds: 9223372036854775807 } } }",
       "f:3:8: max must be more than 0 and at most 31536000 seconds"},
      {"rules {\n name: \"a\"\n ttl { max { seconds: -1 } } }", "f:3:8: max must be"},
      {"rules {\n name: \"a\"\n ttl { max { seconds: 5 nanos: 1000000000 } } }", "f:3:8: max must"},
      {"rules { name: \"a\" uid: 1 }\nrules {\n name: \"a\" uid: 2 }",
       "f:3:2: rule \"a\" has the name of the one in line 1"},
      {"rules { name: \"a\" uid: [1, 2] }\nrules { name: \"b\" uid: [2, 1] }",
       "f:2:1: rule \"b\" matches the same clients as rule \"a\" (line 1)"},
      {"rules { name: \"a\" uid: [1, 2] }\nrules { name: \"b\" uid: 2 gid: 7 }",
       "f:2:1: rule \"b\" never applies: rule \"a\" (line 1) matches all that it matches"},
      {"rules { name: \"all\" }\nrules { name: \"b\" cgroup: \"/a\" }", "f:2:1: rule \"b\" never"},
      {"rules { name: \"a\" cgroup: \"/a/*\" }\nrules { name: \"b\" cgroup: \"/a/b/c\" }",
       "f:2:1: rule \"b\" never"},
      {"# caf\xe9\n", "f:1:6: this byte is not UTF-8"},
  };
  for (const auto& [text, says] : bad) EXPECT_THAT(FirstOf(text), HasSubstr(says)) << text;
}

TEST(Parse, RulesThatOverlapOnlyAreTaken) {
  EXPECT_EQ(FirstOf("rules { name: \"a\" uid: 1 gid: 7 } rules { name: \"b\" uid: 1 }"), "none");
  EXPECT_EQ(FirstOf("rules { name: \"a\" cgroup: \"/a/b\" } rules { name: \"b\" cgroup: \"/a\" }"),
            "none");
  EXPECT_EQ(FirstOf("rules { name: \"a\" uid: 1 } rules { name: \"b\" uid: [1, 2] }"), "none");
  // The range does not have the overflow uid.
  EXPECT_EQ(FirstOf("rules { name: \"a\" uid_range { first: 0 last: 70000 } }"
                    "rules { name: \"b\" uid: 65534 }"),
            "none");
}

TEST(Parse, ThatNobodyHasTheDefaultsIsNoted) {
  EXPECT_EQ(Parse("rules { name: \"all\" limits { sessions: 1 } }").notes.size(), 1u);
  EXPECT_EQ(Parse("rules { name: \"all\" deny: true }").notes.size(), 0u);
  EXPECT_EQ(Parse("rules { name: \"n\" uid: 65534 } rules { name: \"all\" }").notes.size(), 0u);
}

TEST(Parse, WhatIsTooLargeIsRefused) {
  EXPECT_THAT(FirstOf(std::string(kMostFileBytes + 1, ' ')), HasSubstr("larger than"));
  std::string rules;
  for (int i = 0; i <= kMostRules; ++i) {
    rules += "rules { name: \"r" + std::to_string(i) + "\" uid: " + std::to_string(i) + " }\n";
  }
  EXPECT_THAT(FirstOf(rules), HasSubstr("f:257:1: more than 256 rules"));
  std::string patterns = "rules { name: \"a\"\n";
  for (int i = 0; i <= kMostPatterns; ++i) patterns += "devices: \"d" + std::to_string(i) + "\"\n";
  EXPECT_THAT(FirstOf(patterns + "}"), HasSubstr("f:66:1: more than 64"));
  EXPECT_THAT(FirstOf("rules { name: \"" + std::string(65, 'x') + "\" }"), HasSubstr("longer"));
}

TEST(Parse, TheExampleIsGood) {
  const auto text = ReadPolicyFile("deploy/mrd.textproto.example");
  ASSERT_TRUE(text.ok()) << text.status();
  const Parsed parsed = Parse(*text);
  ASSERT_TRUE(parsed.ok()) << ToString("example", parsed.problems[0]);
  EXPECT_GT(parsed.policy.rules_size(), 2);
}

TEST(ReadPolicyFile, WhatIsNoReadableFileIsAnErrorAndNobodyWaits) {
  char dir[] = "/tmp/mrd-policy-XXXXXX";
  ASSERT_NE(mkdtemp(dir), nullptr);
  const std::string base = dir;
  EXPECT_TRUE(absl::IsNotFound(ReadPolicyFile(base + "/none").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadPolicyFile(base).status()));
  ASSERT_EQ(mkfifo((base + "/fifo").c_str(), 0600), 0);
  EXPECT_TRUE(absl::IsInvalidArgument(ReadPolicyFile(base + "/fifo").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ReadPolicyFile("/dev/zero").status()));
  std::ofstream(base + "/large") << std::string(kMostFileBytes + 1, ' ');
  EXPECT_TRUE(absl::IsInvalidArgument(ReadPolicyFile(base + "/large").status()));
  std::ofstream(base + "/good") << "rules {}";
  EXPECT_EQ(*ReadPolicyFile(base + "/good"), "rules {}");
  for (const char* file : {"/fifo", "/large", "/good"}) unlink((base + file).c_str());
  rmdir(dir);
}

// Whatever comes: no crash, every problem printable and in the text, and what is taken can be used.
TEST(Parse, MutatedPoliciesAreTakenOrRefusedInOrder) {
  const std::string seed_text = R"(
rules { name: "a" uid: [1, 2] uid_range { first: 10 last: 20 } gid: 5 gid_range { last: 9 }
        limits { sessions: 3 pinned_bytes: 100 regions: 1 endpoints: 2 buffers: 3 }
        ttl { min { seconds: 2 } max { seconds: 60 nanos: 5 } default { seconds: 30 } } }
rules { name: "b" cgroup: "/kubepods.slice/*" cgroup: "/a/?b*" unsealed: true }
rules { name: "c" devices: "mlx5_*" access: [LOCAL_WRITE, REMOTE_READ] named_domains: false }
rules { name: "d" deny: true uid: 65534 })";
  const std::string pieces[] = {
      "{",     "}",   "\"",     "*",  "/",        "[",  "-1",  "65534",
      "rules", ":",   "\xff",   "\n", "\\",       "\0", "1e9", "18446744073709551615",
      "#",     "uid", "cgroup", "**", "\xc2\x85", "<",  ">",   "max { }"};
  std::mt19937 random(20261130);
  int good = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = seed_text;
    for (int edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % (text.size() + 1);
      switch (random() % 4) {
        case 0:
          text.erase(at, random() % 20);
          break;
        case 1:
          text.insert(at, pieces[random() % std::size(pieces)]);
          break;
        case 2:
          if (at < text.size()) text[at] = static_cast<char>(random());
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 80));
      }
    }
    const Parsed parsed = Parse(text);
    const int lines = 1 + static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    for (const Problem& problem : parsed.problems) {
      ASSERT_FALSE(problem.what.empty()) << text;
      ASSERT_LE(problem.line, lines) << text;
      ASSERT_GE(problem.line, 0) << text;
      for (const char c : problem.what) ASSERT_TRUE(c < 0 || c >= 0x20) << text;
    }
    if (!parsed.ok()) continue;
    ++good;
    const Policy policy(parsed.policy, broker::Limits(), Policy::Unbounded());
    for (const uint32_t uid : {0u, 1u, 15u, 65534u, 4294967295u}) {
      const Match match = policy.Find({.uid = uid, .gids = {5}, .cgroup = "/kubepods.slice/a/b"});
      ASSERT_NE(match.terms, nullptr);
      ASSERT_GE(match.terms->ClampTtl(std::chrono::nanoseconds(1)).count(), 1);
    }
  }
  EXPECT_GT(good, 50) << "some edits leave it good";
  EXPECT_LT(good, 3950);
}

}  // namespace
}  // namespace mrd::policy
