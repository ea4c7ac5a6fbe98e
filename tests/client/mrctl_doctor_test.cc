// What mrctl doctor says of machines that no test has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_split.h"
#include "client/mrctl/doctor.h"

namespace mrctl {
namespace {

using mrd::v1::Device;
using mrd::v1::Finding;
using testing::HasSubstr;

const Finding* Of(const Findings& findings, const std::string& check) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& each) { return each.check() == check; });
  return found == findings.end() ? nullptr : &*found;
}

// There is one, in this state, and where it is bad it says what to do.
void Expect(const Findings& findings, const std::string& check, Finding::State state,
            const std::string& says = "") {
  const Finding* finding = Of(findings, check);
  ASSERT_NE(finding, nullptr) << check;
  EXPECT_EQ(finding->state(), state) << finding->ShortDebugString();
  EXPECT_EQ(finding->remedy().empty(), state < Finding::WARNING) << finding->ShortDebugString();
  EXPECT_THAT(finding->text() + finding->remedy(), HasSubstr(says));
}

KernelFacts GoodKernel() {
  return {.peer_pidfd = true,
          .pidfd = true,
          .populate = true,
          .max_map_count = 65530,
          .rdma_subsystem = true,
          .uverbs = true,
          .rdma_cm = true};
}

TEST(DoctorKernel, FindsNothingWhereAllIsThere) {
  for (const Finding& each : CheckKernel(GoodKernel(), true)) {
    EXPECT_EQ(each.state(), Finding::GOOD) << each.ShortDebugString();
  }
}

TEST(DoctorKernel, NamesWhatIsMissing) {
  KernelFacts facts = GoodKernel();
  facts.peer_pidfd = false;
  Expect(CheckKernel(facts, true), "peer pidfd", Finding::NOTE, "6.5");
  facts.pidfd = false;
  Expect(CheckKernel(facts, true), "peer pidfd", Finding::PROBLEM, "5.3");
  facts.populate = false;
  Expect(CheckKernel(facts, true), "populate", Finding::PROBLEM, "5.14");
  facts.max_map_count = 1000;
  Expect(CheckKernel(facts, true), "mappings", Finding::WARNING, "sysctl -w");
  facts.rdma_cm = false;
  Expect(CheckKernel(facts, true), "modules", Finding::WARNING, "modprobe");
  Expect(CheckKernel(facts, false), "modules", Finding::NOTE, "soft");
}

class DoctorFiles : public testing::Test {
 protected:
  DoctorFiles() {
    char base[] = "/tmp/mrd-XXXXXX";
    EXPECT_NE(mkdtemp(base), nullptr);
    base_ = base;
  }
  ~DoctorFiles() override { std::filesystem::remove_all(base_); }
  void WriteProcess(const std::string& memlock, const std::string& files, const char* caps) {
    std::filesystem::create_directories(base_ + "/77");
    std::ofstream(base_ + "/77/limits")
        << "Limit                     Soft Limit           Hard Limit           Units     \n"
        << "Max open files            " << files << "                 1048576     files     \n"
        << "Max locked memory         " << memlock << "              8388608      bytes     \n";
    std::ofstream(base_ + "/77/status") << "Name:\tmrd\nCapEff:\t" << caps << "\n";
  }
  Findings Process(bool verbs = true) { return CheckProcess(ReadProcess(base_, 77), verbs); }

  std::string base_;
};

TEST_F(DoctorFiles, ReadsTheDaemonsLimits) {
  WriteProcess("8388608", "1024", "0000000000000000");
  Expect(Process(), "memlock", Finding::WARNING, "8 MiB");
  Expect(Process(), "memlock", Finding::WARNING, "CAP_IPC_LOCK");
  Expect(Process(), "descriptors", Finding::WARNING, "LimitNOFILE");
  Expect(Process(/*verbs=*/false), "memlock", Finding::NOTE);
  WriteProcess("unlimited", "1048576", "0000000000000000");
  Expect(Process(), "memlock", Finding::GOOD, "without limit");
  Expect(Process(), "descriptors", Finding::GOOD);
  WriteProcess("65536", "1048576", "0000000000004000");
  Expect(Process(), "memlock", Finding::GOOD, "CAP_IPC_LOCK");
}

TEST_F(DoctorFiles, SaysThatTheDaemonsLimitsDoNotShow) {
  Expect(Process(), "memlock", Finding::NOTE, "/proc");
  Expect(CheckProcess(ReadProcess(base_, 0), true), "memlock", Finding::NOTE, "namespace");
}

TEST_F(DoctorFiles, KnowsADirectoryWithoutADaemon) {
  Expect(CheckSockets(base_ + "/none"), "directory", Finding::PROBLEM, "Start mrd");
  Expect(CheckSockets(base_), "sockets", Finding::PROBLEM, "attach.sock");
  std::ofstream(base_ + "/attach.sock") << "";
  Expect(CheckSockets(base_), "sockets", Finding::PROBLEM, "no socket");
  ASSERT_EQ(chmod(base_.c_str(), 0777), 0);
  Expect(CheckSockets(base_), "directory", Finding::PROBLEM, "chmod o-w");
  EXPECT_EQ(DaemonPid(base_), 0);
}

Device DeviceOf(const std::string& name, Device::State state, const std::string& address) {
  Device device;
  device.set_name(name);
  device.set_state(state);
  device.set_endpoints(true);
  if (!address.empty()) device.add_addresses(address);
  return device;
}

TEST(DoctorDevices, NamesTheOnesThatDoNotServe) {
  Expect(CheckDevices("verbs", {}), "devices", Finding::PROBLEM, "rdma link");
  Expect(CheckDevices("soft", {}), "devices", Finding::NOTE, "without hardware");
  const Findings findings = CheckDevices(
      "verbs", {DeviceOf("a0", Device::ACTIVE, "10.0.0.1"), DeviceOf("b0", Device::ACTIVE, ""),
                DeviceOf("c0", Device::DOWN, "10.0.0.2")});
  Expect(findings, "device a0", Finding::GOOD, "10.0.0.1");
  Expect(findings, "device b0", Finding::WARNING, "ip address add");
  Expect(findings, "device c0", Finding::WARNING, "rdma link show c0");
  EXPECT_EQ(Of(findings, "link"), nullptr);
  Expect(CheckDevices("verbs", {DeviceOf("c0", Device::DOWN, "")}), "link", Finding::PROBLEM);
}

TEST(CheckAllowed, SaysThatARuleAllowsNoneOfTheDevicesHere) {
  mrd::v1::AppliedPolicy policy;
  const std::vector<Device> devices = {DeviceOf("a0", Device::ACTIVE, "10.0.0.1")};
  EXPECT_TRUE(CheckAllowed(policy, devices).empty()) << "all";
  policy.set_rule("tight");
  policy.add_devices("mlx*");
  Expect(CheckAllowed(policy, devices), "policy", Finding::PROBLEM, "mlx*");
  policy.add_devices("a?");
  EXPECT_TRUE(CheckAllowed(policy, devices).empty());
}

class DoctorSurvival : public testing::Test {
 protected:
  DoctorSurvival() {
    status_.set_fabric("verbs");
    status_.mutable_policy()->set_account("uid 7");
    SetFate(survival_.mutable_sessions(), 2, 0);
    SetFate(survival_.mutable_regions(), 3, 0);
    SetFate(survival_.mutable_endpoints(), 1, 0);
  }
  static void SetFate(mrd::v1::Survival::Fate* fate, uint64_t go_on, uint64_t end) {
    fate->set_go_on(go_on);
    fate->set_end(end);
  }
  void SetStore(uint64_t used, uint64_t limit) {
    survival_.mutable_store()->set_used(used);
    survival_.mutable_store()->set_limit(limit);
  }

  mrd::v1::GetStatusResponse status_;
  mrd::v1::Survival& survival_ = *status_.mutable_survival();
};

TEST_F(DoctorSurvival, SaysWhatGoesOnAndHowFullTheStoreIs) {
  SetStore(5, 2000);
  Expect(CheckSurvival(status_), "store", Finding::GOOD, "5 of at most 2000 descriptors");
  Expect(CheckSurvival(status_), "restart", Finding::GOOD,
         "2 sessions, 3 regions and 1 endpoint of uid 7 would go on");
  EXPECT_EQ(CheckSurvival(status_).size(), 2u);
  SetStore(1800, 2000);
  Expect(CheckSurvival(status_), "store", Finding::WARNING, "FileDescriptorStoreMax=");
  status_.mutable_session()->set_admin(true);
  Expect(CheckSurvival(status_), "restart", Finding::GOOD, "1 endpoint would go on");
}

TEST_F(DoctorSurvival, SaysWhatEndsThoughThereIsAStore) {
  SetStore(5, 5);
  SetFate(survival_.mutable_endpoints(), 1, 4);
  const Findings findings = CheckSurvival(status_);
  ASSERT_EQ(findings.size(), 3u);
  EXPECT_EQ(findings[1].state(), Finding::GOOD);
  EXPECT_EQ(findings[2].state(), Finding::WARNING);
  EXPECT_THAT(findings[2].text(), HasSubstr("4 endpoints of uid 7 would end"));
  EXPECT_THAT(findings[2].remedy(), HasSubstr("while the store was full"));
}

TEST_F(DoctorSurvival, SaysThatKeysEndWithADaemonThatHasNoStore) {
  SetFate(survival_.mutable_sessions(), 0, 2);
  SetFate(survival_.mutable_regions(), 0, 3);
  SetFate(survival_.mutable_endpoints(), 0, 0);
  Expect(CheckSurvival(status_), "store", Finding::WARNING, "mrd.service");
  Expect(CheckSurvival(status_), "store", Finding::WARNING, "2 sessions and 3 regions of uid 7");
  EXPECT_EQ(CheckSurvival(status_).size(), 1u);
  status_.set_fabric("soft");
  Expect(CheckSurvival(status_), "store", Finding::NOTE, "soft");
}

TEST_F(DoctorSurvival, NamesTheGenerationsThatAreStillInUse) {
  SetStore(5, 2000);
  mrd::v1::Generation* const old = survival_.add_old_generations();
  old->set_device("rxe0");
  old->set_generation(4);
  old->set_sessions(1);
  old->set_endpoints(2);
  Expect(CheckSurvival(status_), "generation", Finding::WARNING,
         "rxe0, generation 4, of before a restart: 1 session and 2 endpoints of uid 7");
  Expect(CheckSurvival(status_), "generation", Finding::WARNING, "mrctl generations leave rxe0 4");
}

TEST_F(DoctorSurvival, SaysThatAnOlderDaemonDoesNotTell) {
  status_.clear_survival();
  Expect(CheckSurvival(status_), "store", Finding::NOTE, "older");
}

TEST(DoctorText, ShowsEachRemedyBelowItsFinding) {
  EXPECT_EQ(DoctorText({Good("one", "is fine"), Warning("other", "is low", "Raise it.")}),
            "ok      one    is fine\n"
            "WARNING other  is low\n"
            "               -> Raise it.\n"
            "\n"
            "0 problems, 1 warning\n");
}

TEST(DoctorText, IsRightInEightyColumns) {
  std::string words;
  for (int i = 0; i < 40; ++i) words += "word ";
  const std::string text = DoctorText({Problem("check", words, words + std::string(90, 'x'))});
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_TRUE(line.size() <= 80 || line.find(' ', 18) == line.npos) << line;
  }
  EXPECT_NE(text.find("\n               word"), std::string::npos) << text;
  EXPECT_NE(text.find("\n                  word"), std::string::npos) << text;
}

}  // namespace
}  // namespace mrctl
