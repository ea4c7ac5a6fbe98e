// mrctl top on a terminal: it draws, obeys keys, and gives the terminal back however it ends.
#include <signal.h>
#include <sys/wait.h>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/daemon_test.h"
#include "tests/e2e/terminal.h"

namespace mrd::e2e {
namespace {

using testing::HasSubstr;

class MrctlTopTest : public DaemonTest {
 protected:
  std::vector<std::string> Argv(std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"client/mrctl/mrctl", "top", "--interval=200ms"});
    more.push_back("--socket-dir=" + dir());
    return more;
  }
  void ExpectGivenBack(Terminal& terminal) {
    EXPECT_TRUE(terminal.IsPlain());
    EXPECT_TRUE(terminal.GaveTheScreenBack()) << terminal.Written();
  }
};

TEST_F(MrctlTopTest, DrawsAndObeysKeys) {
  Start();
  RawClient client(dir(), {.name = "the-client"});
  Terminal terminal(Argv(), 80, 24);
  ASSERT_TRUE(terminal.Shows("the-client")) << terminal.Written();
  EXPECT_FALSE(terminal.IsPlain());
  EXPECT_TRUE(terminal.Shows("*PINNED"));
  terminal.Type("c");
  EXPECT_TRUE(terminal.Shows("*CALLS/S"));
  terminal.Type("l");
  EXPECT_TRUE(terminal.Shows("*LAPSES"));
  terminal.Forget();
  terminal.Resize(40, 10);
  EXPECT_TRUE(terminal.Shows("\x1b[7m"));
  terminal.Type("q");
  const auto status = terminal.Wait();
  ASSERT_TRUE(status);
  EXPECT_TRUE(WIFEXITED(*status) && WEXITSTATUS(*status) == 0);
  ExpectGivenBack(terminal);
}

TEST_F(MrctlTopTest, GivesTheTerminalBackOnEverySignal) {
  Start();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV}) {
    SCOPED_TRACE(strsignal(signal));
    Terminal terminal(Argv(), 80, 24);
    ASSERT_TRUE(terminal.Shows("*PINNED")) << terminal.Written();
    kill(terminal.pid(), signal);
    ASSERT_TRUE(terminal.Wait());
    ExpectGivenBack(terminal);
  }
}

TEST_F(MrctlTopTest, GivesTheTerminalBackWhileItIsStopped) {
  Start();
  Terminal terminal(Argv(), 80, 24);
  ASSERT_TRUE(terminal.Shows("*PINNED"));
  kill(terminal.pid(), SIGTSTP);
  EXPECT_TRUE(WaitUntil(kPatience, [&] { return terminal.IsPlain(); }));
  EXPECT_TRUE(WaitUntil(kPatience, [&] { return terminal.GaveTheScreenBack(); }));
  terminal.Forget();
  kill(terminal.pid(), SIGCONT);
  EXPECT_TRUE(terminal.Shows("*PINNED"));
  EXPECT_FALSE(terminal.IsPlain());
  terminal.Type("q");
  EXPECT_TRUE(terminal.Wait());
}

TEST_F(MrctlTopTest, SaysThatTheDaemonHasGoneAndGoesOnLooking) {
  Start();
  Terminal terminal(Argv(), 80, 24);
  ASSERT_TRUE(terminal.Shows("*PINNED"));
  ASSERT_TRUE(
      WaitUntil(kPatience, [&] { return admin().ListSessions().response.sessions_size() == 2; }));
  Stop();
  EXPECT_TRUE(terminal.Shows("OLD: ")) << terminal.Written();
  terminal.Type("q");
  EXPECT_TRUE(terminal.Wait());
  ExpectGivenBack(terminal);
}

TEST_F(MrctlTopTest, WithoutATerminalItPrintsSamples) {
  Start();
  Process live({.argv = Argv(), .stderr_path = daemon().base() + "/err"});
  EXPECT_EQ(live.ExitStatus(), 2);
  EXPECT_THAT(ReadFile(daemon().base() + "/err"), HasSubstr("--once"));
  Process once({.argv = Argv({"--once"})});
  const std::string text = once.ReadAll();
  EXPECT_EQ(once.ExitStatus(), 0);
  EXPECT_THAT(text, HasSubstr("*PINNED"));
  EXPECT_THAT(text, HasSubstr("(this)"));
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  Process json({.argv = Argv({"--json"})});
  for (int i = 0; i < 3; ++i) {
    const auto line = json.Read();
    ASSERT_TRUE(line);
    const auto sample = nlohmann::json::parse(*line, nullptr, false);
    ASSERT_FALSE(sample.is_discarded()) << *line;
    EXPECT_EQ(sample["sessions"].size(), 2u);
  }
  Process one({.argv = Argv({"--json", "--once"})});
  EXPECT_FALSE(nlohmann::json::parse(one.ReadAll(), nullptr, false).is_discarded());
}

}  // namespace
}  // namespace mrd::e2e
