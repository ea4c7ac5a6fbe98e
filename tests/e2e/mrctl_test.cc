// mrctl, as a person and as a script use it.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <sstream>
#include <thread>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

constexpr char kMrctl[] = "client/mrctl/mrctl";

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

class MrctlTest : public EachFabricTest {
 protected:
  Process StartMrctl(std::vector<std::string> args) {
    args.insert(args.begin(), kMrctl);
    args.push_back("--socket-dir=" + dir());
    remove(err_path().c_str());
    return Process({.argv = args, .stderr_path = err_path()});
  }
  Outcome Mrctl(const std::vector<std::string>& args) { return OutcomeOf(StartMrctl(args)); }
  // Without --socket-dir.
  Outcome MrctlAlone(std::vector<std::string> args) {
    args.insert(args.begin(), kMrctl);
    remove(err_path().c_str());
    return OutcomeOf(Process({.argv = args, .stderr_path = err_path()}));
  }
  Outcome OutcomeOf(Process process) {
    Outcome run;
    run.out = process.ReadAll();
    run.status = process.ExitStatus();
    run.err = ReadFile(err_path());
    return run;
  }
  // What it prints with --json, which must be JSON and nothing else.
  nlohmann::json Json(std::vector<std::string> args) {
    args.push_back("--json");
    const Outcome run = Mrctl(args);
    EXPECT_EQ(run.status, 0) << run.err;
    return Parse(run.out);
  }
  static nlohmann::json Parse(const std::string& text) {
    auto value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    EXPECT_FALSE(value.is_discarded()) << "no JSON:\n" << text;
    return value;
  }
  std::string err_path() { return daemon().base() + "/mrctl-err"; }
};
MRD_ON_EACH_FABRIC(MrctlTest);

TEST_P(MrctlTest, TheDaemonAndItsDevices) {
  StartThis();
  const Outcome devices = Mrctl({"devices"});
  EXPECT_EQ(devices.status, 0) << devices.err;
  EXPECT_THAT(devices.out, HasSubstr(device()));
  EXPECT_EQ(Json({"devices"})["devices"][0]["name"], device());
  const Outcome status = Mrctl({"status"});
  EXPECT_EQ(status.status, 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr(GetParam()));
  EXPECT_EQ(Json({"status"})["fabric"], GetParam());
  EXPECT_EQ(Json({"status", "--admin"})["totals"]["sessions"], "2");
  EXPECT_EQ(Mrctl({"version"}).status, 0);
  Json({"version"});
}

TEST_P(MrctlTest, RegisterPrintsTheKeysAndHoldsThem) {
  StartThis();
  Process mrctl = StartMrctl({"register", "--size=64K", "--count=2", "--access=read"});
  const std::string header = mrctl.Read().value_or("");
  EXPECT_THAT(header, MatchesRegex("DEVICE +ADDRESS +LENGTH +LKEY +RKEY +LEASE *"));
  const auto leases = admin().ListAllLeases().response;
  ASSERT_EQ(leases.leases_size(), 2);
  for (const auto& held : leases.leases()) {
    const std::string line = mrctl.Read().value_or("");
    char rkey[32];
    char addr[32];
    snprintf(rkey, sizeof rkey, "0x%08x", held.lease().keys(0).rkey());
    snprintf(addr, sizeof addr, "%lx", static_cast<unsigned long>(held.lease().addr()));
    EXPECT_THAT(line, HasSubstr(device()));
    EXPECT_THAT(line, HasSubstr(rkey));
    EXPECT_THAT(line, HasSubstr(addr));
    EXPECT_THAT(line, HasSubstr(std::to_string(held.lease().lease_id())));
    EXPECT_EQ(held.lease().length(), 65536u);
  }
  EXPECT_THAT(Mrctl({"leases"}).out,
              HasSubstr(std::to_string(leases.leases(1).lease().lease_id())));
  EXPECT_THAT(Mrctl({"sessions"}).out, HasSubstr("mrctl register"));
  EXPECT_EQ(Json({"sessions"})["sessions"].size(), 3u);
  EXPECT_EQ(Json({"leases"})["leases"].size(), 2u);
  mrctl.Kill(SIGINT);
  EXPECT_EQ(mrctl.ExitStatus(), 0);
  EXPECT_EQ(Look().regions, 0u);
}

TEST_P(MrctlTest, RegisterInJson) {
  StartThis();
  const Outcome run = Mrctl({"register", "--size=4096", "--for=0", "--json"});
  EXPECT_EQ(run.status, 0) << run.err;
  auto lease = Parse(run.out)["leases"][0];
  EXPECT_EQ(lease["length"], "4096");
  EXPECT_EQ(lease["keys"][0]["device"], device());
  EXPECT_NE(lease["keys"][0]["rkey"], 0);
}

TEST_P(MrctlTest, ListensForPeers) {
  StartThis();
  const std::string at = address().empty() ? "127.0.0.1" : address();
  Process mrctl = StartMrctl({"register", "--size=4K", "--listen=" + at + ":0", "--json"});
  std::string text;
  while (text.find("}}") == std::string::npos && text.find("}\n}") == std::string::npos) {
    const auto line = mrctl.Read(seconds(5));
    ASSERT_TRUE(line) << text;
    text += *line + "\n";
  }
  auto json = Parse(text);
  RawClient peer(dir());
  const auto connected = peer.Connect(at, json["endpoint"]["local_port"].get<uint32_t>());
  ASSERT_TRUE(connected.ok()) << connected.text();
  // Address, rkey and length, big-endian.
  const auto& data = connected.response.private_data();
  ASSERT_GE(data.size(), 16u);
  EXPECT_EQ(data.substr(12, 4), std::string("\0\0\x10\0", 4));
  mrctl.Kill(SIGTERM);
  EXPECT_EQ(mrctl.ExitStatus(), 0);
}

TEST_P(MrctlTest, ARefusalIsStatusOneAndOneLineThatTellsWhatToDo) {
  StartThis({.set = "pinned_bytes=65536"});
  const Outcome quota = Mrctl({"register", "--size=128K", "--for=0"});
  EXPECT_EQ(quota.status, 1);
  EXPECT_EQ(quota.out, "");
  EXPECT_THAT(quota.err, HasSubstr("65536"));
  EXPECT_THAT(quota.err, HasSubstr("ask the operator"));
  EXPECT_EQ(std::count(quota.err.begin(), quota.err.end(), '\n'), 1) << quota.err;
  const Outcome device = Mrctl({"register", "--size=4K", "--device=nope", "--for=0"});
  EXPECT_EQ(device.status, 1);
  EXPECT_THAT(device.err, HasSubstr("mrctl devices"));
}

// Populating it first would take half a minute, or not be possible at all.
TEST_P(MrctlTest, WhatCannotBeRegisteredIsRefusedBeforeItsMemoryIsMade) {
  StartThis({.set = "pinned_bytes=65536"});
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--size=100T"}, {"--size=4095", "--count=17"}}) {
    std::vector<std::string> whole = {"register", "--for=0"};
    whole.insert(whole.end(), args.begin(), args.end());
    const Outcome quota = Mrctl(whole);
    EXPECT_EQ(quota.status, 1);
    EXPECT_THAT(quota.err, HasSubstr("the limit of 65536 pinned bytes of uid"));
    EXPECT_THAT(quota.err, HasSubstr("[QUOTA_BYTES]"));
  }
  EXPECT_EQ(Mrctl({"register", "--for=0", "--size=4095", "--count=16"}).status, 0);
  for (const char* size : {"--size=4G", "--size=100T"}) {
    const Outcome listens = Mrctl({"register", size, "--listen=127.0.0.1:0"});
    EXPECT_EQ(listens.status, 2);
    EXPECT_THAT(listens.err, HasSubstr("less than 4G"));
  }
}

TEST_P(MrctlTest, ARefusalInJsonIsOneObject) {
  StartThis({.set = "pinned_bytes=65536"});
  const Outcome quota = Mrctl({"register", "--size=128K", "--for=0", "--json"});
  EXPECT_EQ(quota.status, 1);
  EXPECT_EQ(quota.out, "");
  auto refusal = Parse(quota.err);
  EXPECT_EQ(refusal["code"], "RESOURCE_EXHAUSTED");
  EXPECT_EQ(refusal["reason"], "QUOTA_BYTES");
  EXPECT_THAT(refusal["message"].get<std::string>(), HasSubstr("ask the operator"));
  EXPECT_TRUE(refusal["errno"].is_null());
  EXPECT_THAT(refusal["limit_name"].get<std::string>(), HasSubstr("pinned bytes"));
  EXPECT_EQ(refusal["limit"], 65536);
  EXPECT_EQ(refusal["used"], 0);
  // What is not a refusal has the same fields; so has what is wrong with the command line.
  const Outcome nowhere = MrctlAlone({"devices", "--json", "--socket-dir=/tmp/no\n\"such\\dir"});
  EXPECT_EQ(nowhere.status, 3);
  EXPECT_EQ(Parse(nowhere.err)["errno"], "ENOENT");
  EXPECT_TRUE(Parse(nowhere.err)["reason"].is_null());
  const Outcome usage = Mrctl({"register", "--size=4K", "--for=abc", "--json"});
  EXPECT_EQ(usage.status, 2);
  EXPECT_THAT(Parse(usage.err)["message"].get<std::string>(), HasSubstr("--for"));
  auto note = Parse(Mrctl({"register", "--size=4K", "--for=0", "--json"}).err);
  EXPECT_THAT(note["note"].get<std::string>(), HasSubstr("1 region deregistered"));
}

TEST_P(MrctlTest, ASessionThatIsNotThereIsARefusal) {
  StartThis();
  const Outcome run = Mrctl({"leases", "--session=4711"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("[NO_SUCH_SESSION]"));
}

TEST_P(MrctlTest, MoreBuffersThanASessionMayHoldAreARefusal) {
  StartThis({.set = "buffers=2"});
  const Outcome run = Mrctl({"register", "--size=4K", "--count=300", "--for=0"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("no more than 2"));
  EXPECT_THAT(run.err, HasSubstr("[QUOTA_BUFFERS]"));
  EXPECT_EQ(Mrctl({"register", "--size=4K", "--count=2", "--for=0"}).status, 0);
}

TEST_P(MrctlTest, RegionsOfDevicesAreShownToAdminsOnly) {
  StartThis();
  EXPECT_THAT(Mrctl({"devices"}).out, HasSubstr(" -/"));
  EXPECT_THAT(Mrctl({"devices", "--admin"}).out, HasSubstr(" 0/"));
  const auto of_first = [&](std::vector<std::string> args) {
    return Json(std::move(args))["devices"][0];
  };
  EXPECT_EQ(of_first({"devices"}).count("regions"), 0u);
  EXPECT_EQ(of_first({"devices", "--admin"}).at("regions"), "0");
}

TEST_P(MrctlTest, WrongUsageIsStatusTwoAndOneLineThatTellsWhatIsAllowed) {
  StartThis();
  const struct {
    std::vector<std::string> args;
    std::string wrong, allowed;
  } kCases[] = {
      {{}, "no command", "devices"},
      {{"nothing"}, "\"nothing\"", "devices, status"},
      {{"devices", "--bogus"}, "\"--bogus\"", "mrctl devices takes --help"},
      {{"register"}, "--size is required", "mrctl register --help"},
      {{"register", "--size=12Q"}, "--size", "K, M, G or T, not \"12Q\""},
      {{"register", "--size=4K", "--access=all"}, "--access", "remote_atomic"},
      {{"register", "--size=4K", "--pages=1G"}, "--pages", "4k, thp or 2m"},
      {{"register", "--size=4K", "--count=0"}, "--count", "from 1 to 1000000"},
      {{"register", "--size=4K", "--for=abc"}, "--for", "seconds"},
      {{"register", "--size=4K", "--listen=::1:2"}, "--listen", "[ADDRESS]:PORT"},
      {{"register", "--size=4K", "--for"}, "--for: no value", "mrctl register --help"},
      {{"leases", "--session=this"}, "--session", "not \"this\""},
      {{"devices", "--json=abc"}, "--json", "a flag takes no value"},
  };
  for (const auto& wrong : kCases) {
    const Outcome run = MrctlAlone(wrong.args);
    EXPECT_EQ(run.status, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr(wrong.wrong));
    EXPECT_THAT(run.err, HasSubstr(wrong.allowed));
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"--help"}, {"register", "--help"}, {"leases", "--help"}}) {
    const Outcome help = Mrctl(args);
    EXPECT_EQ(help.status, 0);
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
}

// Unlike the daemon: a script appends what its user gave it.
TEST_P(MrctlTest, AnOptionGivenAgainReplacesTheFirst) {
  StartThis();
  EXPECT_EQ(Mrctl({"devices", "--socket-dir=/tmp/no-such-dir"}).status, 0);
}

TEST_P(MrctlTest, ADaemonThatIsNotThereIsStatusThreeAndThePath) {
  StartThis();
  const Outcome run = MrctlAlone({"devices", "--socket-dir=/tmp/no-such-dir"});
  EXPECT_EQ(run.status, 3);
  EXPECT_THAT(run.err, HasSubstr("/tmp/no-such-dir/attach.sock"));
}

TEST_P(MrctlTest, TheAdminDirectoryIsToldFromTheClientsAtOnce) {
  StartThis();
  const auto began = Clock::now();
  for (const char* more : {"--json", "--admin"}) {
    const Outcome run = MrctlAlone({"devices", more, "--socket-dir=" + dir() + "-admin"});
    EXPECT_EQ(run.status, 3);
    EXPECT_THAT(run.err, HasSubstr("is for admins: give " + dir() + ";"));
  }
  EXPECT_LT(Clock::now() - began, Promised(seconds(5)));
}

TEST_P(MrctlTest, ADaemonThatGoesAwayIsStatusThree) {
  StartThis();
  Process mrctl = StartMrctl({"register", "--size=4K"});
  ASSERT_TRUE(mrctl.Read());
  daemon().process().Kill(SIGTERM);
  EXPECT_EQ(mrctl.ExitStatus(), 3);
  ExpectEnd();
}

TEST_P(MrctlTest, WhoMayNotUseTheSocketIsToldWhichAndWhatToDo) {
  StartThis();
  Process process({.argv = {kMrctl, "devices", "--socket-dir=" + dir()},
                   .stderr_path = err_path(),
                   .uid = 65533});
  EXPECT_EQ(process.ExitStatus(), 3);
  const std::string said = ReadFile(err_path());
  EXPECT_THAT(said, HasSubstr("attach.sock"));
  EXPECT_THAT(said, HasSubstr("0660"));
}

// Attaching and populating can take long; the daemon, which is stopped here, stands for both.
TEST_P(MrctlTest, RegisterEndsAtOnceBeforeItHasRegistered) {
  StartThis();
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    daemon().process().Kill(SIGSTOP);
    Process mrctl = StartMrctl({"register", "--size=4K"});
    std::this_thread::sleep_for(milliseconds(200));
    const auto began = Clock::now();
    mrctl.Kill(signal);
    EXPECT_EQ(mrctl.ReadAll(), "");
    EXPECT_NE(mrctl.ExitStatus(), 0);
    EXPECT_LT(Clock::now() - began, Promised(seconds(2)));
    daemon().process().Kill(SIGCONT);
  }
  EXPECT_EQ(Look().regions, 0u);
}

TEST_P(MrctlTest, ASecondSignalEndsRegisterWhateverItWaitsFor) {
  StartThis();
  Process mrctl = StartMrctl({"register", "--size=4K"});
  ASSERT_TRUE(mrctl.Read());
  daemon().process().Kill(SIGSTOP);
  siginfo_t stopped;  // All of its threads; else one may answer still.
  ASSERT_EQ(waitid(P_PID, daemon().pid(), &stopped, WSTOPPED | WNOWAIT), 0);
  mrctl.Kill(SIGINT);
  std::this_thread::sleep_for(milliseconds(200));
  const auto began = Clock::now();
  do {
    mrctl.Kill(SIGTERM);  // One that comes with the first is none of its own.
  } while (!mrctl.Wait(milliseconds(200)) && Clock::now() - began < kPatience);
  EXPECT_NE(mrctl.ExitStatus(), 0);
  EXPECT_LT(Clock::now() - began, Promised(seconds(2)));
  daemon().process().Kill(SIGCONT);
}

// Ctrl-C would be taken, and nobody would hear of it.
TEST_P(MrctlTest, RegisterHoldsNothingWhereItCannotWaitForASignal) {
  if (kSanitized) GTEST_SKIP() << "sanitizers need a descriptor to look at an object's type";
  StartThis();
  Process shell({.argv = {"/bin/sh", "-c",
                          std::string("ulimit -n 4; exec ") + kMrctl +
                              " register --size 4K --socket-dir=" + dir()},
                 .stderr_path = err_path()});
  EXPECT_EQ(shell.ExitStatus(), 1);
  EXPECT_THAT(ReadFile(err_path()), HasSubstr("cannot wait for Ctrl-C: Too many open files"));
}

// A socket must not become its standard output.
TEST_P(MrctlTest, AClosedStandardOutputIsAnErrorAndNothingGoesToTheDaemon) {
  StartThis();
  remove(err_path().c_str());
  Process shell(
      {.argv = {"/bin/sh", "-c",
                std::string("exec ") + kMrctl + " devices --socket-dir=" + dir() + " >&-"},
       .stderr_path = err_path()});
  EXPECT_EQ(shell.ExitStatus(), 1);
  EXPECT_THAT(ReadFile(err_path()), HasSubstr("cannot write to standard output"));
  EXPECT_THAT(daemon().Log(), testing::Not(HasSubstr("says nothing")));
}

// `register` held, for a person who has not got the keys.
TEST_P(MrctlTest, AFullDiskIsAnErrorOfEveryCommand) {
  StartThis();
  for (const char* command : {"devices", "status", "sessions", "leases", "register --size 4K",
                              "register --size 4K --json", "version", "--help", "--version"}) {
    remove(err_path().c_str());
    Process shell({.argv = {"/bin/sh", "-c",
                            std::string("exec ") + kMrctl + " --socket-dir=" + dir() + " " +
                                command + " >/dev/full"},
                   .stderr_path = err_path()});
    EXPECT_EQ(shell.ExitStatus(), 1) << command;
    EXPECT_THAT(ReadFile(err_path()), HasSubstr("No space left on device")) << command;
  }
}

TEST_P(MrctlTest, ADomainIsMadeWithAModeOrJoined) {
  StartThis();
  const std::vector<std::string> common = {"register", "--size=4K", "--for=0", "--domain=job"};
  const auto with = [&](const std::string& option) {
    auto args = common;
    args.push_back(option);
    return Mrctl(args);
  };
  EXPECT_THAT(with("--join").err, HasSubstr("DOMAIN_UNKNOWN"));
  RawClient holder(dir());
  EXPECT_EQ(with("--domain-mode=0660").status, 0);
  ASSERT_TRUE(holder.OpenDomain("job").ok());
  EXPECT_EQ(with("--join").status, 0);
  EXPECT_THAT(Mrctl({"register", "--size=4K", "--domain=other", "--domain-mode=0777"}).err,
              HasSubstr("0660"));
  EXPECT_EQ(with("--domain-mode=9").status, 2);
  EXPECT_EQ(Mrctl({"register", "--size=4K", "--join"}).status, 2) << "which?";
}

}  // namespace
}  // namespace mrd::e2e
