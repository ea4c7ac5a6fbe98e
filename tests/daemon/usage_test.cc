// A wrong command line of the daemon: one line that says what was wrong and what is allowed.
#include "daemon/usage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "daemon/options.h"

namespace mrd {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Outcome {
  bool runs;
  int exit_code;
  Options options;
  std::string said;
};

Outcome Parse(std::vector<std::string> args) {
  args.insert(args.begin(), "mrd");
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  Outcome outcome{};
  testing::internal::CaptureStderr();
  outcome.runs = ParseOptions(static_cast<int>(argv.size()), argv.data(), &outcome.options,
                              &outcome.exit_code);
  outcome.said = testing::internal::GetCapturedStderr();
  return outcome;
}

TEST(Usage, OfARightCommandLine) {
  const Outcome outcome = Parse(
      {"--socket-dir", "/tmp/b", "--fabric=soft", "--log-level=warning", "--socket-mode=0666"});
  EXPECT_TRUE(outcome.runs) << outcome.said;
  EXPECT_EQ(outcome.options.sockets.dir, "/tmp/b");
  EXPECT_EQ(outcome.options.sockets.mode, 0666u);
  EXPECT_EQ(outcome.options.fabric, "soft");
  EXPECT_EQ(outcome.options.log_level, spdlog::level::warn);
  EXPECT_EQ(Parse({}).options.log_level, spdlog::level::info);
  EXPECT_EQ(Parse({}).options.store, 0u);
  EXPECT_EQ(Parse({"--store", "2000"}).options.store, 2000u);
}

TEST(Usage, SaysWhatWasWrongAndWhatIsAllowed) {
  const struct {
    std::vector<std::string> args;
    std::string wrong, allowed;
  } kCases[] = {
      {{"--bogus"}, "\"--bogus\"", "--log-level"},
      {{"extra", "--fabric=soft"}, "\"extra\"", "--fabric"},
      {{"--log-level", "loud"}, "--log-level", "debug, info, warning or error, not \"loud\""},
      {{"--log-level"}, "--log-level: no value", "mrd --help"},
      {{"--fabric", "hard"}, "--fabric", "verbs or soft, not \"hard\""},
      {{"--socket-mode", "rw"}, "--socket-mode", "0660, not \"rw\""},
      {{"--socket-mode", "-1"}, "--socket-mode", "0660, not \"-1\""},
      {{"--metrics-listen", "0.0.0.0:9464"},
       "0.0.0.0 is not an address of this host alone",
       "127.0.0.1:PORT"},
      {{"--metrics-listen", "9464"}, "not \"9464\"", "unix:PATH"},
      {{"--metrics-textfile", "mrd.txt"}, "not \"mrd.txt\"", "an absolute path that ends in .prom"},
      {{"--metrics-textfile", "/var/.prom"}, "not \"/var/.prom\"", "ends in .prom"},
      {{"--socket-mode", "1777"}, "--socket-mode", "0660, not \"1777\""},
      {{"--socket-dir", ""}, "--socket-dir", "a directory, not \"\""},
      {{"--socket-group", ""}, "--socket-group", "getent group"},
      {{"--socket-group", "no-such"}, "--socket-group", "getent group"},
      {{"--store", "many"}, "--store", "FileDescriptorStoreMax= of the unit, not \"many\""},
      {{"--store=-1"}, "--store", "a number of descriptors"},
      {{"--store=1000000"}, "--store", "a number of descriptors"},
      {{"--fabric=verbs", "--fabric=soft"}, "--fabric is given 2 times", "once"},
      {{"--socket-dir=/a", "--socket-dir", "/a"}, "--socket-dir is given 2 times", "once"},
  };
  for (const auto& wrong : kCases) {
    const Outcome outcome = Parse(wrong.args);
    EXPECT_FALSE(outcome.runs);
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_THAT(outcome.said, StartsWith("mrd: "));
    EXPECT_THAT(outcome.said, HasSubstr(wrong.wrong));
    EXPECT_THAT(outcome.said, HasSubstr(wrong.allowed));
    EXPECT_EQ(std::count(outcome.said.begin(), outcome.said.end(), '\n'), 1) << outcome.said;
  }
}

TEST(Usage, IsWithinEightyColumns) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(Parse({"--help"}).exit_code, 0);
  std::istringstream help(testing::internal::GetCapturedStdout());
  int lines = 0;
  for (std::string line; std::getline(help, line); ++lines) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_GT(lines, 10);
}

TEST(Usage, SaysWhatCli11DoesOfWhatIsNoLongOption) {
  CLI::App app;
  cli::Prepare(app, "mrd");
  EXPECT_EQ(cli::UsageError(app, CLI::ConversionError("Could not convert: -x = abc")),
            "Could not convert: -x = abc; see mrd --help");
}

}  // namespace
}  // namespace mrd
