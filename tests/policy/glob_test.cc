#include "daemon/broker/policy/glob.h"

#include <gtest/gtest.h>

#include <chrono>

#include "daemon/broker/policy/text.h"

namespace mrd::policy {
namespace {

std::string Matched(std::string_view glob, std::string_view path) {
  return std::string(MatchedPath(glob, path).value_or("none"));
}

TEST(Glob, ANameIsMatchedAsAWhole) {
  EXPECT_TRUE(NameMatches("mlx5_0", "mlx5_0"));
  EXPECT_FALSE(NameMatches("mlx5_0", "mlx5_01"));
  EXPECT_FALSE(NameMatches("mlx5_0", "mlx5_"));
  EXPECT_TRUE(NameMatches("mlx5_*", "mlx5_"));
  EXPECT_TRUE(NameMatches("*", ""));
  EXPECT_TRUE(NameMatches("m*5*_?", "mlx5_5_0"));
  EXPECT_FALSE(NameMatches("m*5*_?", "mlx5_5_"));
  EXPECT_TRUE(NameMatches("a*b*c", "abbbbbc"));
  EXPECT_FALSE(NameMatches("a*b*c", "abbbbb"));
  EXPECT_TRUE(NameMatches("x\\x2dy*", "x\\x2dyz")) << "systemd's escapes are literal";
}

TEST(Glob, APathIsMatchedByWholeComponentsFromItsBeginning) {
  EXPECT_EQ(Matched("/a", "/a"), "/a");
  EXPECT_EQ(Matched("/a", "/a/b/c"), "/a");
  EXPECT_EQ(Matched("/a", "/ab"), "none");
  EXPECT_EQ(Matched("/a/*", "/a"), "none");
  EXPECT_EQ(Matched("/a/*", "/a/pod1/x/y"), "/a/pod1");
  EXPECT_EQ(Matched("/a/p?d*", "/a/pod1/x"), "/a/pod1");
  EXPECT_EQ(Matched("/*/b", "/a/b/c"), "/a/b");
  EXPECT_EQ(Matched("/*/b", "/a/x/b"), "none") << "'*' has no '/'";
  EXPECT_EQ(Matched("/", "/a/b"), "/");
  EXPECT_EQ(Matched("/*", "/"), "none");
  EXPECT_EQ(Matched("/a", ""), "none") << "a cgroup that is not known";
  EXPECT_EQ(Matched("/", ""), "none");
  EXPECT_EQ(Matched("/*", "//a"), "none");
}

TEST(Glob, OneThatCouldBacktrackForEverEndsSoon) {
  std::string glob;
  while (glob.size() + 2 <= kMostGlobBytes) glob += "a*";
  glob.back() = 'b';
  const std::string name(4096, 'a');
  const auto began = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(NameMatches(glob, name));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST(Glob, WhatCoversWhat) {
  EXPECT_TRUE(PathCovers("/a/*", "/a/b"));
  EXPECT_TRUE(PathCovers("/a/*", "/a/b*"));
  EXPECT_TRUE(PathCovers("/a", "/a/b"));
  EXPECT_TRUE(PathCovers("/", "/a/b"));
  EXPECT_FALSE(PathCovers("/a/b", "/a"));
  EXPECT_FALSE(PathCovers("/a/b", "/a/*"));
  EXPECT_FALSE(PathCovers("/a", "/"));
}

TEST(Glob, ProblemsAreNamed) {
  EXPECT_EQ(PathGlobProblem("/a/*"), "");
  EXPECT_EQ(PathGlobProblem("/"), "");
  EXPECT_EQ(NameGlobProblem("mlx5_*"), "");
  for (const char* bad : {"", "a", "/a/", "//a", "/a//b", "/a/[b", "/a/**"}) {
    EXPECT_NE(PathGlobProblem(bad), "") << bad;
  }
  for (const char* bad : {"", "a/b", "[ab]"}) EXPECT_NE(NameGlobProblem(bad), "") << bad;
  EXPECT_NE(PathGlobProblem("/" + std::string(kMostGlobBytes, '*')), "");
  EXPECT_NE(NameGlobProblem(std::string(kMostGlobBytes + 1, 'a')), "");
}

TEST(Text, OnlyWhatATerminalTakesIsPrintable) {
  EXPECT_TRUE(IsPrintable("caf\xc3\xa9 \xf0\x9f\x98\x80"));
  for (const char* bad : {"a\n", "\x1b[2J", "\x7f", "\xc2\x85", "\xff", "\xc0\x80", "\xed\xa0\x80",
                          "\xf4\x90\x80\x80", "\xe2\x82", "\u2028", "\u202e", "\u2066"}) {
    EXPECT_FALSE(IsPrintable(bad)) << bad;
    EXPECT_TRUE(IsPrintable(Printable(bad))) << bad;
  }
  EXPECT_EQ(Printable("a\x1b\xff z\xc3\xa9"), "a?? z\xc3\xa9");
}

}  // namespace
}  // namespace mrd::policy
