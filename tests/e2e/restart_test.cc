// What goes on over restarts of the daemon under a service manager with a store, into other
// versions of it too. On faked verbs, whose kernel outlives the daemon.
#include <gmock/gmock.h>
#include <signal.h>

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/client.h"
#include "daemon/broker/ledger/slots.h"
#include "mrd/ledger/v1/ledger.pb.h"
#include "nlohmann/json.hpp"
#include "tests/e2e/other_version.h"
#include "tests/e2e/service_manager.h"

namespace mrd::e2e {
namespace {

namespace pb = ::mrd::ledger::v1;
using broker::ledger::Kind;
using broker::ledger::Slots;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kThis[] = "tests/e2e/test_daemon";
constexpr char kNext[] = "tests/e2e/next_daemon";
constexpr char kLater[] = "tests/e2e/later_daemon";
constexpr auto kOfNoVersionYet = static_cast<Kind>(200);

class RestartTest : public testing::Test {
 protected:
  void Start(const char* program = kThis, size_t store = 100) {
    manager_.emplace(store);
    manager_->Start(program);
  }
  void Restart(const char* program = kThis, int signal = SIGTERM) {
    manager_->End(signal);
    manager_->Start(program);
  }
  Client Attach() {
    auto client = Client::Attach({.socket_dir = manager_->dir(), .name = "restart test"});
    Require(client.ok(), std::string(client.status().message()));
    return *std::move(client);
  }
  // The rkeys of each lease, by generation, as the daemon has them.
  static std::map<uint64_t, std::map<uint64_t, uint32_t>> Keys(const Client& client) {
    std::map<uint64_t, std::map<uint64_t, uint32_t>> keys;
    const auto leases = client.ListLeases();
    EXPECT_TRUE(leases.ok()) << leases.status();
    if (!leases.ok()) return keys;
    for (const v1::Lease& lease : *leases) {
      for (const v1::Key& key : lease.keys()) keys[lease.lease_id()][key.generation()] = key.rkey();
    }
    return keys;
  }
  // REQUIRES: no daemon runs.
  std::unique_ptr<Slots> Ledger() {
    auto slots = Slots::Open(manager_->Stored("ledger"));
    Require(slots.ok(), std::string(slots.status().message()));
    return *std::move(slots);
  }
  struct Connection {
    Listener listener;
    Endpoint accepted, connected;
  };
  static Connection Connect(const Client& client) {
    auto listener = client.Listen({.address = "10.99.0.1"});
    Require(listener.ok(), std::string(listener.status().message()));
    auto accepted = std::async(std::launch::async, [&] { return listener->Accept(""); });
    auto connected = client.Connect(
        {.address = "10.99.0.1", .port = static_cast<uint16_t>(listener->info().local_port())});
    Require(connected.ok(), std::string(connected.status().message()));
    auto other = accepted.get();
    Require(other.ok(), std::string(other.status().message()));
    return {*std::move(listener), *std::move(other), *std::move(connected)};
  }
  // "STATE: text remedy" of each finding of this check.
  std::vector<std::string> Doctor(const std::string& check, bool admin = false) {
    std::vector<std::string> argv = {"client/mrctl/mrctl", "doctor", "--json",
                                     "--socket-dir=" + manager_->dir()};
    if (admin) argv.push_back("--admin");
    Process doctor({.argv = argv});
    const auto report = nlohmann::json::parse(doctor.ReadAll(), nullptr, false);
    std::vector<std::string> found;
    for (const auto& each : report["findings"]) {
      if (each["check"] != check) continue;
      found.push_back(each["state"].get<std::string>() + ": " + each["text"].get<std::string>() +
                      " " + each["remedy"].get<std::string>());
    }
    return found;
  }

  std::optional<ServiceManager> manager_;
};

// Whether a version that this one does not know has written of it, here and in each of its keys.
bool OthersWrote(const google::protobuf::Message& message) {
  const auto& unknown = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    if (unknown.field(i).number() == kFieldOfOtherVersions) return true;
  }
  return false;
}

TEST_F(RestartTest, EachVersionTakesOverFromTheOneBeforeAndGivesBackToIt) {
  Start();
  Client client = Attach();
  const uint64_t session = client.session_id();
  ASSERT_TRUE(client.OpenDomain("job").ok());
  auto buffer = client.CreateBuffer(64 << 10);
  ASSERT_TRUE(buffer.ok());
  std::vector<Region> regions;
  const auto hold = [&](const RegisterOptions& options, const std::vector<Range>& ranges) {
    auto made = client.Register(options, ranges);
    ASSERT_TRUE(made.ok()) << made.status();
    for (Region& region : *made) regions.push_back(std::move(region));
  };
  const v1::Access::Preset preset = v1::Access::REG_WRITE;
  hold({.preset = preset}, {*buffer});
  hold({.preset = preset}, {Range(*buffer, 0, 4096), Range(*buffer, 4096, 8192)});
  hold({.preset = preset, .domain = "job"}, {*buffer});
  hold({.preset = preset, .ttl = std::chrono::hours(1)}, {*buffer});

  int round = 0;
  for (const char* program : {kNext, kThis, kNext, kThis}) {
    SCOPED_TRACE(std::string(program) + " in round " + std::to_string(++round));
    const auto before = Keys(client);
    ASSERT_EQ(before.size(), regions.size());
    manager_->End(round % 2 == 0 ? SIGTERM : SIGKILL);
    // As if the next version had kinds of its own.
    if (round == 2) {
      ASSERT_TRUE(Ledger()->Put(kOfNoVersionYet, "not known").ok());
    }
    manager_->Start(program);
    EXPECT_EQ(Keys(client), before);
    EXPECT_EQ(client.session_id(), session);
    EXPECT_TRUE(client.ListDomains().ok());
    // Records of this version, and those of before written anew.
    hold({.preset = preset}, {*buffer});
    const auto rekeyed = client.AddKeys();
    ASSERT_TRUE(rekeyed.ok()) << rekeyed.status();
    EXPECT_EQ(rekeyed->regions.size(), regions.size() - 1);
  }
  for (const Region& region : regions) EXPECT_TRUE(region.key("fake0"));
  EXPECT_THAT(manager_->Log(),
              AllOf(HasSubstr("the ledger is of version 1, this daemon of version 2"),
                    HasSubstr("the ledger is of version 2, this daemon of version 1")));

  // What others wrote of leases is there still, though this version has added keys to them.
  manager_->End(SIGKILL);
  const auto slots = Ledger();
  int kinds = 0, leases = 0, of_others = 0;
  slots->ForEach(kOfNoVersionYet, [&](Slots::Id, std::string_view) { ++kinds; });
  EXPECT_EQ(kinds, 1);
  slots->ForEach(Kind::kLease, [&](Slots::Id, std::string_view bytes) {
    pb::Lease lease;
    ASSERT_TRUE(lease.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
    ++leases;
    of_others += OthersWrote(lease);
    for (const pb::Key& key : lease.keys()) {
      const bool of_this_run = key.generation() == regions[0].key("fake0")->generation;
      EXPECT_EQ(OthersWrote(key), !of_this_run) << lease.ShortDebugString();
    }
  });
  EXPECT_EQ(leases, static_cast<int>(regions.size()));
  EXPECT_EQ(of_others, leases - 1) << "all but the one that this version made last";
}

TEST_F(RestartTest, ALedgerThatAVersionIsNotForIsClosedWhole) {
  struct {
    const char *writes, *reads, *says;
  } const cases[] = {
      {kLater, kThis,
       "is of version 3, for daemons from version 2 on; this daemon is of version 1"},
      {kThis, kLater,
       "is of version 1, for daemons from version 1 on; this daemon is of version 3, and reads "
       "those from version 2 on"}};
  for (const auto& each : cases) {
    Start(each.writes);
    Client client = Attach();
    auto buffer = client.CreateBuffer(4096);
    ASSERT_TRUE(buffer.ok());
    auto region = client.RegWrite(*buffer);
    ASSERT_TRUE(region.ok()) << region.status();
    const uint64_t lease = region->lease_id();
    Restart(each.reads);
    EXPECT_THAT(manager_->Log(),
                AllOf(HasSubstr(each.says), HasSubstr("nothing of the run before is taken over"),
                      HasSubstr("2 descriptors of it are closed")));
    // To the library it is the loss of the session: it makes another one.
    EXPECT_TRUE(WaitUntil(kPatience, [&] { return region->lease_id() != lease; }));
    EXPECT_EQ(Keys(client).size(), 1u);
    EXPECT_EQ(manager_->Stored().size(), 2u) << "a new ledger and the device";
  }
}

TEST_F(RestartTest, ANewRegionIsForConnectionsOfBeforeTooUnlessItIsToBeForNewOnesOnly) {
  Start();
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  ASSERT_TRUE(buffer.ok());
  const Range range(*buffer);
  const Connection before = Connect(client);
  Restart();
  auto both = client.RegWrite(range);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->keys().size(), 2u);
  EXPECT_TRUE(both->KeyFor(before.accepted));
  auto newest =
      client.Register({.preset = v1::Access::REG_WRITE, .newest_only = true}, {&range, 1});
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ((*newest)[0].keys().size(), 1u);
  EXPECT_FALSE((*newest)[0].KeyFor(before.accepted));
  const Connection since = Connect(client);
  for (const Region* region : {&*both, &(*newest)[0]}) {
    EXPECT_TRUE(region->KeyFor(since.accepted));
    EXPECT_EQ(region->keys().size(), region == &*both ? 2u : 1u);
  }
}

TEST_F(RestartTest, DoctorSaysWhatARestartWouldLeaveAndHasLeft) {
  Start();
  EXPECT_THAT(Doctor("store"),
              Contains(HasSubstr("GOOD: the service manager keeps 1 of at most 100")));
  EXPECT_THAT(Doctor("restart"), IsEmpty());
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  ASSERT_TRUE(buffer.ok());
  auto region = client.RegWrite(*buffer);
  ASSERT_TRUE(region.ok());
  const Connection connection = Connect(client);
  EXPECT_THAT(Doctor("restart"),
              ElementsAre(AllOf(HasSubstr("GOOD: 1 session, 1 region and 3 endpoints of uid"),
                                HasSubstr("would go on"))));
  EXPECT_THAT(Doctor("store"), Contains(HasSubstr("keeps 4 of at most 100")));
  EXPECT_THAT(Doctor("restart", /*admin=*/true),
              ElementsAre(HasSubstr("1 session, 1 region and 3 endpoints would go on")))
      << "of everybody";
  EXPECT_THAT(Doctor("generation"), IsEmpty());
  Restart();
  EXPECT_THAT(Doctor("generation"),
              ElementsAre(AllOf(HasSubstr("WARNING: fake0, generation 1"),
                                HasSubstr("1 session, 1 region and 2 endpoints of uid"),
                                HasSubstr("mrctl generations leave fake0 1"))));
}

TEST_F(RestartTest, DoctorSaysWhatTheStoreHadNoRoomFor) {
  Start(kThis, /*store=*/3);
  Client client = Attach();
  const Connection connection = Connect(client);
  EXPECT_NE(connection.accepted.info().survives(), connection.connected.info().survives());
  EXPECT_THAT(Doctor("store"),
              Contains(HasSubstr("WARNING: the service manager keeps 3 of at most 3")));
  EXPECT_THAT(Doctor("restart"),
              ElementsAre(HasSubstr("GOOD: 1 session and 2 endpoints of uid"),
                          AllOf(HasSubstr("WARNING: 1 endpoint of uid"), HasSubstr("would end"),
                                HasSubstr("the store was full"))));
}

}  // namespace
}  // namespace mrd::e2e
