// mrctl policy, as a person and as a script use it; there is no daemon.
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/process.h"

namespace mrd::e2e {
namespace {

using testing::HasSubstr;

struct Outcome {
  int status;
  std::string out;
  std::string err;
};

class MrctlPolicyTest : public testing::Test {
 protected:
  MrctlPolicyTest() {
    char base[] = "/tmp/mrd-XXXXXX";
    Require(mkdtemp(base) != nullptr, "mkdtemp");
    base_ = base;
  }
  ~MrctlPolicyTest() override { std::filesystem::remove_all(base_); }

  std::string Write(const std::string& text) const {
    std::ofstream(base_ + "/policy") << text;
    return base_ + "/policy";
  }
  Outcome Mrctl(std::vector<std::string> args) const {
    args.insert(args.begin(), {"client/mrctl/mrctl", "policy"});
    remove((base_ + "/err").c_str());
    Process process({.argv = args, .stderr_path = base_ + "/err"});
    Outcome run;
    run.out = process.ReadAll();
    run.status = process.ExitStatus();
    run.err = ReadFile(base_ + "/err");
    return run;
  }

  std::string base_;
};

TEST_F(MrctlPolicyTest, CheckSaysThatAFileIsGood) {
  const std::string file = Write("rules { name: \"a\" uid: 1 }");
  const Outcome run = Mrctl({"check", file});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, file + ": good, 1 rule\n");
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(Mrctl({"check", "deploy/mrd.textproto.example"}).status, 0);
}

TEST_F(MrctlPolicyTest, CheckTellsEachErrorByLineAndColumn) {
  const std::string file =
      Write("rules {\n name: \"a\"\n limits { sessions: 0 }\n cgroup: \"x\" }\nrules { uid: 7 }");
  const Outcome run = Mrctl({"check", file});
  EXPECT_EQ(run.status, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr(file + ":3:11: sessions must be at least 1"));
  EXPECT_THAT(run.err, HasSubstr(file + ":4:2: pattern \"x\""));
  EXPECT_THAT(run.err, HasSubstr(file + ":5:1: the rule has no name"));
}

TEST_F(MrctlPolicyTest, CheckIsJsonForPrograms) {
  const std::string file = Write("rules { name: \"a\" }\nrules { nmae: \"b\" }");
  const Outcome run = Mrctl({"check", file, "--json"});
  EXPECT_EQ(run.status, 1);
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json["valid"], false);
  EXPECT_EQ(json["problems"][0]["line"], 2);
  EXPECT_EQ(json["problems"][0]["column"], 9);
}

TEST_F(MrctlPolicyTest, CheckOfWhatIsNoFileFails) {
  EXPECT_EQ(Mrctl({"check", base_ + "/none"}).status, 1);
  EXPECT_EQ(Mrctl({"check", base_}).status, 1);
  EXPECT_EQ(Mrctl({"check"}).status, 2);
  EXPECT_EQ(Mrctl({}).status, 2);
  EXPECT_THAT(Mrctl({}).err, HasSubstr("takes check, explain"));
}

TEST_F(MrctlPolicyTest, ExplainTellsTheRuleAndItsTerms) {
  const std::string file = Write(R"(
    rules { name: "pods" cgroup: "/k/*" limits { sessions: 3 } ttl { max { seconds: 60 } }
            devices: "mlx5_*" access: [LOCAL_WRITE] }
    rules { name: "group" gid: [7, 8] unsealed: true }
    rules { name: "out" uid: 9 deny: true })");
  const Outcome pod = Mrctl({"explain", "--uid", "1", "--cgroup", "/k/pod1/x", "--config", file});
  EXPECT_EQ(pod.status, 0) << pod.err;
  EXPECT_THAT(pod.out, HasSubstr("uid 1, cgroup /k/pod1/x: rule \"pods\" of the policy; limits "
                                 "count over cgroup /k/pod1\n"));
  EXPECT_THAT(pod.out, HasSubstr("sessions              3\n"));
  EXPECT_THAT(pod.out, HasSubstr("1 s to 60 s"));
  EXPECT_THAT(pod.out, HasSubstr("mlx5_*"));
  const Outcome group =
      Mrctl({"explain", "--uid=1", "--gid=5", "--gid=8", "--config", file, "--json"});
  EXPECT_EQ(group.status, 0) << group.err;
  const auto json = nlohmann::json::parse(group.out);
  EXPECT_EQ(json["rule"], "group");
  EXPECT_EQ(json["account"], "uid 1");
  EXPECT_EQ(json["unsealed"], true);
  EXPECT_EQ(json["limits"]["sessions"], "4096");
  EXPECT_THAT(Mrctl({"explain", "--uid=9", "--config", file}).out, HasSubstr("may not attach"));
  EXPECT_THAT(Mrctl({"explain", "--uid=65534", "--config", file}).out,
              HasSubstr("no rule of the policy: the built-in defaults"));
}

TEST_F(MrctlPolicyTest, ExplainOfABadFileOrAnImpossibleClientFails) {
  const std::string file = Write("rules { }");
  const Outcome bad = Mrctl({"explain", "--uid=1", "--config", file});
  EXPECT_EQ(bad.status, 1);
  EXPECT_THAT(bad.err, HasSubstr(file + ":1:1: "));
  EXPECT_EQ(Mrctl({"explain", "--uid=1", "--config", base_ + "/none"}).status, 1);
  EXPECT_EQ(Mrctl({"explain"}).status, 2);
  EXPECT_EQ(Mrctl({"explain", "--uid=-1"}).status, 2);
  EXPECT_EQ(Mrctl({"explain", "--uid=4294967296"}).status, 2);
  EXPECT_EQ(Mrctl({"explain", "--uid=1", "--cgroup=relative"}).status, 2);
}

}  // namespace
}  // namespace mrd::e2e
