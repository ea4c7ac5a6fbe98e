// Fifty client processes take a random walk, some of them killed on the way: at quiet points what
// the books say is what lies on the device, and what each client knows to hold.
#include <signal.h>

#include <algorithm>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "tests/e2e/daemon_test.h"
#include "tests/e2e/walk_report.h"

namespace mrd::e2e {
namespace {

constexpr const char* kPolicy = R"(rules {
  name: "walk"
  uid: 0
  ttl { min { nanos: 1000000 } }
  limits { regions: 500 pinned_bytes: 12000000 endpoints: 100 }
})";

// MRD_SEED: that of an earlier walk. Each client then takes the same steps; how they meet each
// other, and when the killed ones die, is the machine's.
unsigned Seed() {
  const char* const given = getenv("MRD_SEED");
  return given != nullptr ? static_cast<unsigned>(strtoul(given, nullptr, 10))
                          : std::random_device()();
}

// The number after a word.
int64_t NumberAfter(const std::string& text, const std::string& word) {
  const size_t at = text.find(word + " ");
  Require(at != std::string::npos, word + " in: " + text);
  return strtoll(text.c_str() + at + word.size(), nullptr, 10);
}

class RandomWalkTest : public DaemonTest {
 protected:
  void StartClient() {
    clients_.push_back(
        {.process = std::make_unique<Process>(ProcessOptions{
             .argv = {"tests/e2e/walk_client", dir(), std::to_string(next_seed_++)}}),
         .report = {}});
  }

  // All at once; an operator revokes so many times, and `kills` of them die, meanwhile.
  void Do(const std::string& command, int kills, int revocations = 0) {
    for (Client& client : clients_) client.process->Write(command);
    for (int i = 0; i < revocations / 2; ++i) RevokeSome();
    std::shuffle(clients_.begin(), clients_.end(), random_);
    for (int i = 0; i < kills; ++i) {
      std::this_thread::sleep_for(milliseconds(random_() % 20));
      clients_.back().process->Kill(SIGKILL);
      Add(clients_.back().report.walked);
      clients_.pop_back();  // Which waits for its end.
    }
    for (int i = 0; i < revocations / 2; ++i) RevokeSome();
    for (Client& client : clients_) {
      const auto line = client.process->Read(3 * kPatience);
      Require(line.has_value(), "a client ended: see above");
      client.report = ReportOf(*line);
    }
  }

  void RevokeSome() {
    const auto listed = admin().ListAllLeases();
    Require(listed.ok(), "list: " + listed.text());
    const auto& leases = listed.response.leases();
    if (leases.empty()) return;
    std::set<uint64_t> ids;
    for (int i = 1 + static_cast<int>(random_() % 5); i > 0; --i) {
      ids.insert(leases[static_cast<int>(random_() % leases.size())].lease().lease_id());
    }
    const auto revoked = admin().RevokeLeases({ids.begin(), ids.end()});
    // One has ended meanwhile: then all others stand.
    Require(revoked.ok() || revoked.reason() == v1::LEASE_UNKNOWN, "revoke: " + revoked.text());
  }

  void Add(const Walked& walked) {
    WalkReport more{.held = {}, .walked = walked};
    std::vector<uint64_t> numbers;
    ForEachNumber(more, [&](uint64_t number) { numbers.push_back(number); });
    size_t i = 0;
    ForEachNumber(ended_, [&](uint64_t& sum) { sum += numbers[i++]; });
  }

  // What all have done, the killed ones up to their last report.
  Walked Total() {
    const WalkReport before = ended_;
    for (const Client& client : clients_) Add(client.report.walked);
    return std::exchange(ended_, before).walked;
  }

  // Nothing is under way: the books, the views of sessions, the device and the clients agree.
  // `in_named` is whether there may be named domains.
  std::string Disagreement(bool in_named) {
    std::ostringstream wrong;
    const auto same = [&wrong](const std::string& what, uint64_t is, uint64_t should) {
      if (is != should) wrong << what << " is " << is << ", not " << should << "\n";
    };
    const auto status = admin().GetStatus();
    const auto sessions = admin().ListSessions();
    const std::string live = daemon().Control("live");
    std::map<uint64_t, const v1::Session*> by_id;
    for (const v1::Session& each : sessions.response.sessions()) by_id[each.session_id()] = &each;
    Held sum;
    for (const Client& client : clients_) {
      const Held& held = client.report.held;
      const auto found = by_id.find(held.session);
      if (found == by_id.end()) return "a session is not listed";
      const v1::Session& session = *found->second;
      const std::string of = "session " + std::to_string(held.session) + "'s ";
      same(of + "regions", session.regions(), held.regions);
      same(of + "bytes", session.pinned_bytes(), held.bytes);
      same(of + "leases", session.leases(), held.leases);
      same(of + "buffers", session.buffers(), held.buffers);
      same(of + "endpoints", session.endpoints(), held.endpoints);
      sum.regions += held.regions;
      sum.bytes += held.bytes;
      sum.buffers += held.buffers;
      sum.endpoints += held.endpoints;
      sum.private_domains += held.private_domains;
      sum.regions_in_named += held.regions_in_named;
    }
    const v1::Totals& totals = status.response.totals();
    same("sessions", totals.sessions(), clients_.size() + 1);
    same("listed sessions", by_id.size(), clients_.size() + 1);
    same("regions", totals.regions(), sum.regions);
    same("bytes", totals.pinned_bytes(), sum.bytes);
    same("buffers", totals.buffers(), sum.buffers);
    same("endpoints", totals.endpoints(), sum.endpoints);
    const std::map<std::string, uint64_t> of_uid = {{"sessions", clients_.size() + 1},
                                                    {"regions", sum.regions},
                                                    {"pinned bytes", sum.bytes},
                                                    {"endpoints", sum.endpoints},
                                                    {"buffers", sum.buffers}};
    // One more session of the uid, which sees what counts to it; the admin's does not.
    const auto seen = RawClient(dir()).GetStatus();
    size_t quotas = 0;
    for (const v1::Quota& quota : seen.response.quotas()) {
      for (const auto& [name, used] : of_uid) {
        if (quota.name() != name + " of uid 0") continue;
        same(quota.name(), quota.used(), used);
        ++quotas;
      }
    }
    same("quotas of the uid", quotas, of_uid.size());
    same("regions on the devices", NumberAfter(live, "mrs"), sum.regions);
    const uint64_t domains = NumberAfter(live, "pds");
    // Each named one has at most as many as there are devices; those that were closed with regions
    // in them stay for these.
    const uint64_t most =
        sum.private_domains + (in_named ? kNamedDomains * 2 + sum.regions_in_named : 0);
    if (domains < sum.private_domains || domains > most) {
      wrong << "protection domains are " << domains << ", not " << sum.private_domains << " to "
            << most << "\n";
    }
    return wrong.str();
  }

  void ExpectAgreement(bool in_named) {
    std::string wrong;
    // What the killed ones had is ended within a moment.
    const bool agreed = WaitUntil(Promised(seconds(1)), [&] {
      wrong = Disagreement(in_named);
      return wrong.empty();
    });
    EXPECT_TRUE(agreed) << wrong;
  }

  static constexpr uint64_t kNamedDomains = 5;  // See walker.cc.
  struct Client {
    std::unique_ptr<Process> process;
    WalkReport report;
  };
  const unsigned seed_ = Seed();
  std::mt19937 random_{seed_};
  unsigned next_seed_ = seed_;
  std::vector<Client> clients_;
  WalkReport ended_;  // The sums of those that are no more.
};

TEST_F(RandomWalkTest, BooksAreTheTruthAllAlong) {
  printf("MRD_SEED=%u\n", seed_);
  const size_t count = kSanitized ? 10 : 50;
  const uint64_t steps = kSanitized ? 5000 : 100000;
  const auto began = Clock::now();
  Start({.fabric = "verbs", .devices = "devices=fake0,fake1", .policy = kPolicy});
  int kills = 0;
  int rounds = 0;
  for (; Total().steps < steps && !HasFailure(); ++rounds) {
    while (clients_.size() < count) StartClient();
    // One registration of this round fails half way, on one device or the other.
    const std::string failing = rounds % 2 == 0 ? "fail fake0 " : "fail fake1 ";
    daemon().Control(failing + (rounds % 5 == 4 ? "pd" : "reg") + " ENOMEM@" +
                     std::to_string(1 + random_() % 30));
    const int dying = static_cast<int>(random_() % 4);
    Do("walk 40", dying, /*revocations=*/static_cast<int>(count / 5));
    kills += dying;
    Do("report", 0);  // Who had walked may have lost a lease since.
    const bool leave = rounds % 4 == 3;
    if (leave) Do("leave", 0);
    ExpectAgreement(/*in_named=*/!leave);
  }
  const Walked walked = Total();
  printf(
      "%d rounds, %d kills, %llu steps in %.1f s: %llu registered, %llu lapsed, %llu revoked, %llu "
      "refused (%llu by quotas, %llu by faults), %llu hang-ups\n",
      rounds, kills, static_cast<unsigned long long>(walked.steps),
      std::chrono::duration<double>(Clock::now() - began).count(),
      static_cast<unsigned long long>(walked.registered),
      static_cast<unsigned long long>(walked.lapsed),
      static_cast<unsigned long long>(walked.revoked),
      static_cast<unsigned long long>(walked.refused),
      static_cast<unsigned long long>(walked.quotas),
      static_cast<unsigned long long>(walked.faults),
      static_cast<unsigned long long>(walked.hang_ups));
  // It went everywhere, or has shown nothing.
  EXPECT_GT(kills, 0);
  EXPECT_GT(walked.registered, steps / 10);
  for (const uint64_t some :
       {walked.lapsed, walked.revoked, walked.refused, walked.quotas, walked.faults}) {
    EXPECT_GT(some, steps / 10000);
  }
  EXPECT_GT(walked.hang_ups, 0u);
  // The end of all at once; TearDown finds nothing held.
  for (const Client& client : clients_) client.process->Kill(SIGKILL);
  clients_.clear();
}

}  // namespace
}  // namespace mrd::e2e
