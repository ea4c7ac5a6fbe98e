// mrctl's commands for operators, as a person and as a script use them.
#include <signal.h>
#include <sys/wait.h>

#include <fstream>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/daemon_test.h"
#include "tests/e2e/terminal.h"

namespace mrd::e2e {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

class MrctlAdminTest : public EachFabricTest {
 protected:
  std::vector<std::string> Argv(std::vector<std::string> args) {
    args.insert(args.begin(), "client/mrctl/mrctl");
    args.push_back("--socket-dir=" + dir());
    return args;
  }
  Outcome Mrctl(const std::vector<std::string>& args) {
    const std::string err = daemon().base() + "/err";
    remove(err.c_str());
    Process process({.argv = Argv(args), .stderr_path = err});
    Outcome run;
    run.out = process.ReadAll();
    run.status = process.ExitStatus();
    run.err = ReadFile(err);
    return run;
  }
  nlohmann::json Json(std::vector<std::string> args) {
    args.push_back("--json");
    const Outcome run = Mrctl(args);
    EXPECT_EQ(run.status, 0) << run.err;
    auto value = nlohmann::json::parse(run.out, nullptr, false);
    EXPECT_FALSE(value.is_discarded()) << run.out;
    return value;
  }
  // Of its screen of 80 columns.
  std::vector<std::string> OnTerminal(const std::vector<std::string>& args) {
    Terminal terminal(Argv(args), 80, 24);
    EXPECT_TRUE(terminal.Wait());
    std::vector<std::string> lines;
    std::istringstream all(terminal.Written());
    for (std::string line; std::getline(all, line);) {
      if (!line.empty() && line.back() == '\r') line.pop_back();
      lines.push_back(line);
    }
    return lines;
  }

  const Memory memory_{kPage};
};
MRD_ON_EACH_FABRIC(MrctlAdminTest);

TEST_P(MrctlAdminTest, TablesFitIn80ColumnsOnATerminal) {
  StartThis();
  Process client({.argv = {"tests/e2e/test_client", dir(), std::string(300, 'a')}});
  ASSERT_EQ(client.Ask("attach").substr(0, 2), "ok");
  ASSERT_EQ(client.Ask("buffer 1048576"), "ok");
  ASSERT_EQ(client.Ask("register 3 60000").substr(0, 2), "ok");
  ASSERT_TRUE(WaitUntil(kPatience,
                        [&] { return Mrctl({"sessions"}).out.find("aaaa") != std::string::npos; }));
  for (const char* command : {"sessions", "leases", "domains", "endpoints", "devices", "doctor"}) {
    const auto lines = OnTerminal({command});
    EXPECT_FALSE(lines.empty()) << command;
    if (std::string(command) == "doctor") continue;  // Its sentences are as long as they are.
    for (const std::string& line : lines) EXPECT_LE(line.size(), 80u) << command << ": " << line;
  }
  EXPECT_THAT(Mrctl({"sessions"}).out, HasSubstr(std::string(100, 'a'))) << "whole for programs";
  const Outcome wide = Mrctl({"sessions", "--wide"});
  EXPECT_THAT(wide.out, AllOf(HasSubstr("CGROUP"), HasSubstr("GID"), HasSubstr("END BY")));
  EXPECT_THAT(Mrctl({"leases", "--wide"}).out, AllOf(HasSubstr("LKEY"), HasSubstr("ADDRESS")));
}

TEST_P(MrctlAdminTest, RevokesLeasesAndSessions) {
  StartThis();
  RawClient client(dir());
  const std::string first = std::to_string(client.RegisterAll(memory_).lease_id());
  const std::string second = std::to_string(client.RegisterAll(memory_).lease_id());
  const std::string third = std::to_string(client.RegisterAll(memory_).lease_id());
  const Outcome leases = Mrctl({"revoke", "lease", first, second, "--reason", "for a test"});
  EXPECT_EQ(leases.status, 0) << leases.err;
  EXPECT_THAT(leases.out, HasSubstr("2 leases revoked"));
  EXPECT_THAT(client.attach().Receive()->event().message(), HasSubstr("for a test"));
  EXPECT_EQ(Json({"revoke", "lease", third})["revoked"], "1");
  const Outcome again = Mrctl({"revoke", "lease", first});
  EXPECT_EQ(again.status, 1);
  EXPECT_THAT(again.err, HasSubstr("LEASE_UNKNOWN"));
  const std::string id = std::to_string(client.session_id());
  const Outcome session = Mrctl({"revoke", "session", id, "--reason=enough"});
  EXPECT_EQ(session.status, 0) << session.err;
  EXPECT_THAT(session.out, HasSubstr("holds nothing any more"));
  const Outcome gone = Mrctl({"revoke", "session", id});
  EXPECT_EQ(gone.status, 1) << "the daemon is there";
  EXPECT_THAT(gone.err, HasSubstr("NO_SUCH_SESSION"));
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"revoke"},
                                                {"revoke", "lease"},
                                                {"revoke", "lease", "x"},
                                                {"revoke", "session", "0"},
                                                {"revoke", "session", "1", "2"}}) {
    EXPECT_EQ(Mrctl(wrong).status, 2);
  }
  ExpectNothingHeld();
}

TEST_P(MrctlAdminTest, DrainsAndTakesItBack) {
  StartThis();
  RawClient client(dir());
  const Outcome drain = Mrctl({"drain", "--reason", "new kernel", "--deadline", "10m"});
  EXPECT_EQ(drain.status, 0) << drain.err;
  EXPECT_THAT(drain.out, AllOf(HasSubstr("new kernel"), HasSubstr("1 session left"),
                               HasSubstr("ended in 9 min")));
  EXPECT_THAT(Mrctl({"status"}).err, HasSubstr("DRAINING")) << "who is no admin is not let in";
  EXPECT_EQ(Mrctl({"status"}).status, 1);
  EXPECT_THAT(Mrctl({"status", "--admin"}).out, HasSubstr("DRAINED"));
  EXPECT_EQ(Json({"status", "--admin"})["drain"]["reason"], "new kernel");
  EXPECT_THAT(Mrctl({"doctor", "--admin"}).out, HasSubstr("mrctl drain --undo"));
  EXPECT_EQ(Mrctl({"drain", "--undo"}).status, 0);
  EXPECT_EQ(Mrctl({"status"}).status, 0);
}

TEST_P(MrctlAdminTest, ReloadTellsLineAndColumn) {
  StartThis({.policy = "rules { name: \"one\" uid: 0 }"});
  EXPECT_EQ(Mrctl({"reload"}).out, "policy in force: 1 rule\n");
  std::ofstream(daemon().policy_file()) << "rules {\n  what: 1\n}";
  const Outcome wrong = Mrctl({"reload"});
  EXPECT_EQ(wrong.status, 1);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr(":2:3"), HasSubstr("POLICY_INVALID")));
}

TEST_P(MrctlAdminTest, RegistersForATimeInADomain) {
  StartThis();
  Process holder({.argv = Argv({"register", "--size=4K", "--ttl=60s", "--domain=shared"})});
  ASSERT_TRUE(holder.Read());
  ASSERT_TRUE(holder.Read());
  const auto lease = Json({"leases"})["leases"][0]["lease"];
  EXPECT_EQ(lease["domain"], "shared");
  EXPECT_TRUE(lease.contains("remaining"));
  EXPECT_THAT(Mrctl({"leases"}).out, HasSubstr("shared"));
  EXPECT_EQ(Json({"domains"})["domains"][0]["members"], "1");
  EXPECT_THAT(Mrctl({"domains"}).out, HasSubstr("0600"));
  holder.Kill(SIGINT);
  EXPECT_EQ(holder.ExitStatus(), 0);
}

TEST_P(MrctlAdminTest, DoctorSaysWhatItFound) {
  StartThis();
  const Outcome run = Mrctl({"doctor"});
  EXPECT_EQ(run.status, run.out.find("PROBLEM") == std::string::npos ? 0 : 1) << run.out;
  for (const char* check :
       {"directory", "sockets", "group", "daemon", "identity", "store", "populate"}) {
    EXPECT_THAT(run.out, HasSubstr(check));
  }
  EXPECT_EQ(run.out.find("mrd.service") != std::string::npos, device() != "soft0") << run.out;
  RawClient client(dir());
  client.RegisterAll(memory_);
  EXPECT_THAT(Mrctl({"doctor"}).out, HasSubstr("now 1 session and 1 region of uid"));
  const Outcome json = Mrctl({"doctor", "--json"});
  const auto report = nlohmann::json::parse(json.out, nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << json.out;
  EXPECT_EQ(report["findings"][0]["state"], "GOOD");
  Process nowhere({.argv = {"client/mrctl/mrctl", "doctor", "--socket-dir=/no/such"}});
  EXPECT_THAT(nowhere.ReadAll(), AllOf(HasSubstr("PROBLEM"), HasSubstr("-> ")));
  EXPECT_EQ(nowhere.ExitStatus(), 1);
}

}  // namespace
}  // namespace mrd::e2e
