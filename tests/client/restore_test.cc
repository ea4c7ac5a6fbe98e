// The daemon is restarted, and the session was lost with it: another one is made of it, or its user
// is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "mrd/v1/status.h"
#include "tests/client/fake_host.h"

namespace mrd::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class Restore : public ::testing::Test {
 protected:
  explicit Restore(bool store = false)
      : host_(store, [this](FakeServices& services) {
          services.on_register = register_;
          services.on_open_domain = open_;
        }) {}

  Client Attach(AttachOptions options = {}) {
    options.socket_dir = host_.dir();
    options.on_lost = [this](const absl::Status& why) {
      std::lock_guard lock(mutex_);
      lost_.push_back(why);
    };
    options.on_rekeyed = [this](const Rekeyed& rekeyed) {
      std::lock_guard lock(mutex_);
      told_.push_back(rekeyed);
    };
    auto client = Client::Attach(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return std::move(*client);
  }
  std::vector<Rekeyed> told() {
    std::lock_guard lock(mutex_);
    return told_;
  }
  std::vector<absl::Status> lost() {
    std::lock_guard lock(mutex_);
    return lost_;
  }

  std::function<absl::Status(int, const v1::RegisterRequest&, v1::RegisterResponse*)> register_ =
      [](int, const auto& request, auto* response) { return GrantFresh(1, request, response); };
  std::function<absl::Status(int, const v1::OpenDomainRequest&)> open_ =
      [](int, const v1::OpenDomainRequest&) { return absl::OkStatus(); };
  FakeHost host_;

 private:
  std::mutex mutex_;
  std::vector<Rekeyed> told_;
  std::vector<absl::Status> lost_;
};

class RestoreOfAStore : public Restore {
 protected:
  RestoreOfAStore() : Restore(/*store=*/true) {}
};

TEST_F(Restore, RegistersEveryLiveRegionAgainAndTellsTheNewKeys) {
  Client client = Attach();
  ASSERT_TRUE(client.OpenDomain("job", {.mode = 0660}).ok());
  auto buffer = client.CreateBuffer(4 * 4096);
  const Range ranges[] = {{*buffer, 4096, 100}, {*buffer, 0, 4096}};
  auto pair = client.Register({.devices = {"fake0"},
                               .flags = {v1::REMOTE_ATOMIC},
                               .domain = "job",
                               .ttl = std::chrono::hours(1)},
                              ranges);
  auto single = client.RegRead(*buffer);
  auto gone = client.RegRead(*buffer);
  ASSERT_TRUE(pair.ok() && single.ok() && gone.ok());
  ASSERT_TRUE(gone->Deregister().ok());
  const auto before = host_.services().registers();
  const std::vector<uint64_t> leases = {(*pair)[0].lease_id(), (*pair)[1].lease_id(),
                                        single->lease_id()};
  const uint32_t old_rkey = single->rkey();
  auto listener = client.Listen({});
  ASSERT_TRUE(listener.ok()) << listener.status();

  host_.Restart();
  ASSERT_TRUE(Soon([&] { return told().size() == 1; }));
  EXPECT_THAT(host_.hellos(), ElementsAre("", ""));
  EXPECT_EQ(client.session_id(), 2u);
  EXPECT_THAT(host_.services().tokens(), Each(FakeHost::TokenOf(2)));
  const auto domains = host_.services().domains();
  ASSERT_EQ(domains.size(), 1u);
  EXPECT_EQ(domains[0].name(), "job");
  EXPECT_EQ(domains[0].mode(), 0660u);

  auto after = host_.services().registers();
  ASSERT_EQ(after.size(), 2u);
  if (after[0].domain().empty()) std::swap(after[0], after[1]);
  for (int i = 0; i < 2; ++i) {
    v1::RegisterRequest was = before[i];
    was.set_request_id(after[i].request_id());
    EXPECT_EQ(after[i].SerializeAsString(), was.SerializeAsString());
  }

  const Rekeyed rekeyed = told()[0];
  EXPECT_EQ(rekeyed.why, Rekeyed::Why::kRestored);
  EXPECT_EQ(rekeyed.session_id, 2u);
  ASSERT_EQ(rekeyed.regions.size(), 3u);
  const Region* const regions[] = {&(*pair)[0], &(*pair)[1], &*single};
  for (int i = 0; i < 3; ++i) {
    const RekeyedRegion& region = rekeyed.regions[i];
    EXPECT_TRUE(region.status.ok()) << region.status;
    EXPECT_EQ(region.old_lease_id, leases[i]);
    EXPECT_NE(region.lease_id, leases[i]);
    EXPECT_EQ(region.lease_id, regions[i]->lease_id());
    EXPECT_EQ(region.addr, regions[i]->addr());
    EXPECT_EQ(region.length, regions[i]->length());
    EXPECT_EQ(region.old_keys.at(0).rkey, leases[i] + 500'000);
    EXPECT_EQ(region.keys.at(0).rkey, regions[i]->rkey());
  }
  EXPECT_NE(single->rkey(), old_rkey);
  EXPECT_EQ((*pair)[0].ttl(), std::chrono::hours(1));

  EXPECT_EQ(ReasonOf(listener->Accept("").status()), v1::ENDPOINT_UNKNOWN);
  EXPECT_EQ(ReasonOf(listener->Close()), v1::ENDPOINT_UNKNOWN);
  const uint64_t now = single->lease_id();
  EXPECT_TRUE(single->Deregister().ok());
  EXPECT_THAT(host_.services().deregisters().at(0).lease_ids(), ElementsAre(now));
  EXPECT_TRUE(lost().empty());
}

TEST_F(RestoreOfAStore, ASessionThatItHasLostIsRestored) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegRead(*buffer);
  ASSERT_TRUE(region.ok());
  const uint64_t lease = region->lease_id();
  host_.Down();
  host_.Forget();
  host_.Up();
  ASSERT_TRUE(Soon([&] { return told().size() == 1; }));
  EXPECT_THAT(host_.hellos(), ElementsAre("", FakeHost::TokenOf(1), ""));
  EXPECT_NE(region->lease_id(), lease);
  // And the next time it is the new one that goes on.
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return host_.hellos().size() == 4; }));
  EXPECT_EQ(host_.hellos().back(), FakeHost::TokenOf(2));
}

TEST_F(Restore, WhoWantsOnlyToBeToldIsToldAndTheSessionHasEnded) {
  Client client = Attach({.on_loss = OnLoss::kTell});
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegRead(*buffer);
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return lost().size() == 1; }));
  EXPECT_EQ(ReasonOf(lost()[0]), v1::SESSION_UNKNOWN);
  EXPECT_EQ(client.SessionStatus(), lost()[0]);
  EXPECT_EQ(client.RegRead(*buffer).status(), lost()[0]);
  EXPECT_EQ(region->Deregister(), lost()[0]);
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(host_.hellos().size(), 1u);
  EXPECT_TRUE(told().empty());
}

TEST_F(RestoreOfAStore, WhoWantsOnlyToBeToldIsToldThatItHasLostTheSession) {
  Client client = Attach({.on_loss = OnLoss::kTell});
  host_.Down();
  host_.Forget();
  host_.Up();
  ASSERT_TRUE(Soon([&] { return lost().size() == 1; }));
  EXPECT_EQ(ReasonOf(lost()[0]), v1::SESSION_UNKNOWN);
  EXPECT_THAT(std::string(lost()[0].message()), HasSubstr("does not know it any more"));
  EXPECT_EQ(host_.hellos().size(), 2u);
}

TEST_F(Restore, ASessionThatTheOperatorEndedIsNot) {
  Client client = Attach();
  v1::AttachEvent event;
  event.set_kind(v1::AttachEvent::REVOKED);
  host_.Tell(event);
  host_.HangUp();
  EXPECT_TRUE(Soon([&] { return lost().size() == 1; }));
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(host_.hellos().size(), 1u);
}

TEST_F(Restore, LeasesThatHadEndedStayEnded) {
  std::atomic<int> events = 0;
  Client client = Attach({.on_event = [&](const v1::AttachEvent&) { ++events; }});
  auto buffer = client.CreateBuffer(4096);
  std::vector<Region> regions;
  for (int i = 0; i < 4; ++i) regions.push_back(std::move(*client.RegRead(*buffer)));
  using Event = v1::AttachEvent;
  for (int i = 0; i < 3; ++i) {
    Event event;
    event.set_kind(i == 0 ? Event::LAPSED : i == 1 ? Event::REVOKED : Event::DEVICE_REMOVED);
    event.add_lease_ids(regions[i].lease_id());
    event.set_device("fake0");
    host_.Tell(event);
  }
  ASSERT_TRUE(Soon([&] { return events == 3; }));
  const uint64_t live = regions[3].lease_id();
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return told().size() == 1; }));
  ASSERT_EQ(told()[0].regions.size(), 1u);
  EXPECT_EQ(told()[0].regions[0].old_lease_id, live);
}

TEST_F(Restore, OneThatIsRefusedDoesNotKeepTheOthersAndIsTold) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(3 * 4096);
  const Range ranges[] = {{*buffer, 0, 4096}, {*buffer, 4096, 4096}, {*buffer, 8192, 4096}};
  auto regions = client.Register({.preset = v1::Access::REG_READ}, ranges);
  ASSERT_TRUE(regions.ok());
  register_ = [](int, const v1::RegisterRequest& request, v1::RegisterResponse* response) {
    for (const v1::Range& range : request.ranges()) {
      if (range.offset() == 4096) return MakeError(v1::QUOTA_BYTES, "too much");
    }
    return GrantFresh(1, request, response);
  };
  const uint64_t refused = (*regions)[1].lease_id();
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return told().size() == 1; }));
  const auto& told_regions = told()[0].regions;
  ASSERT_EQ(told_regions.size(), 3u);
  EXPECT_TRUE(told_regions[0].status.ok() && told_regions[2].status.ok());
  EXPECT_EQ(ReasonOf(told_regions[1].status), v1::QUOTA_BYTES);
  EXPECT_EQ(told_regions[1].old_lease_id, refused);
  EXPECT_EQ(told_regions[1].lease_id, 0u);
  // It is as any region whose lease has ended, and is not tried again.
  EXPECT_EQ((*regions)[1].lease_id(), refused);
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return told().size() == 2; }));
  EXPECT_EQ(told()[1].regions.size(), 2u);
}

TEST_F(Restore, ADomainThatCannotBeOpenedIsToldWithItsRegions) {
  Client client = Attach();
  ASSERT_TRUE(client.OpenDomain("mine").ok());
  ASSERT_TRUE(client.OpenDomain("theirs", {.create = false}).ok());
  auto buffer = client.CreateBuffer(4096);
  const Range range(*buffer);
  auto mine = client.Register({.preset = v1::Access::REG_READ, .domain = "mine"}, {&range, 1});
  auto theirs = client.Register({.preset = v1::Access::REG_READ, .domain = "theirs"}, {&range, 1});
  ASSERT_TRUE(mine.ok() && theirs.ok());
  open_ = [](int, const v1::OpenDomainRequest& request) {
    return request.name() == "theirs" ? MakeError(v1::DOMAIN_FORBIDDEN, "no") : absl::OkStatus();
  };
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return told().size() == 1; }));
  const Rekeyed rekeyed = told()[0];
  ASSERT_EQ(rekeyed.lost_domains.size(), 1u);
  EXPECT_EQ(rekeyed.lost_domains[0].name, "theirs");
  ASSERT_EQ(rekeyed.regions.size(), 2u);
  EXPECT_TRUE(rekeyed.regions[0].status.ok());
  EXPECT_EQ(ReasonOf(rekeyed.regions[1].status), v1::DOMAIN_FORBIDDEN);
}

// Who makes a domain may come back after who joins it.
TEST_F(Restore, ADomainOfOthersIsWaitedForAMoment) {
  Client client = Attach();
  ASSERT_TRUE(client.OpenDomain("theirs", {.create = false}).ok());
  open_ = [](int n, const v1::OpenDomainRequest&) {
    return n < 4 ? MakeError(v1::DOMAIN_UNKNOWN, "none yet") : absl::OkStatus();
  };
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return told().size() == 1; }));
  EXPECT_TRUE(told()[0].lost_domains.empty());
}

TEST_F(Restore, BuffersThatHadBeenReleasedAreNotLeftWithTheDaemon) {
  Client client = Attach();
  auto kept = client.CreateBuffer(4096);
  auto released = client.CreateBuffer(4096);
  auto one = client.RegRead(*kept);
  auto other = client.RegRead(*released);
  ASSERT_TRUE(one.ok() && other.ok());
  ASSERT_TRUE(released->Release().ok());
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return told().size() == 1; }));
  const auto requests = host_.services().registers();
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_NE(requests[0].release_after(), requests[1].release_after());
}

TEST_F(Restore, ACallUnderWayIsMadeInTheNewSession) {
  std::promise<void> under_way;
  std::atomic<bool> first = true;
  register_ = [&](int, const auto& request, auto* response) {
    if (first.exchange(false)) {
      under_way.set_value();
      std::this_thread::sleep_for(milliseconds(300));
    }
    return GrantFresh(1, request, response);
  };
  host_.Restart();
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto call = std::async(std::launch::async, [&] { return client.RegRead(*buffer); });
  under_way.get_future().wait();
  host_.Restart();
  auto region = call.get();
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_THAT(host_.services().tokens(), Each(FakeHost::TokenOf(2)));
  const uint64_t lease = region->lease_id();
  // It is one of the session's now.
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return told().size() == 2; }));
  ASSERT_EQ(told()[1].regions.size(), 1u);
  EXPECT_EQ(told()[1].regions[0].old_lease_id, lease);
}

TEST_F(Restore, ADaemonThatDiesMeanwhileIsWaitedForAgain) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegRead(*buffer);
  ASSERT_TRUE(region.ok());
  const uint64_t lease = region->lease_id();
  std::promise<void> under_way;
  std::atomic<bool> first = true;
  register_ = [&](int, const auto& request, auto* response) {
    if (first.exchange(false)) {
      under_way.set_value();
      std::this_thread::sleep_for(milliseconds(300));
    }
    return GrantFresh(1, request, response);
  };
  host_.Restart();
  under_way.get_future().wait();
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return told().size() == 1; }));
  ASSERT_EQ(told()[0].regions.size(), 1u);
  EXPECT_EQ(told()[0].regions[0].old_lease_id, lease) << "the one that its user knows";
  EXPECT_EQ(told()[0].regions[0].lease_id, region->lease_id());
  EXPECT_TRUE(region->Deregister().ok());
}

TEST_F(Restore, ADrainedDaemonIsNotAskedForEachRegion) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(8 * 4096);
  std::vector<Range> ranges;
  for (uint64_t i = 0; i < 8; ++i) ranges.push_back({*buffer, i * 4096, 4096});
  auto regions = client.Register({.preset = v1::Access::REG_READ}, ranges);
  ASSERT_TRUE(regions.ok());
  register_ = [](int, const v1::RegisterRequest&, v1::RegisterResponse*) {
    return MakeError(v1::DRAINING, "the operator drains it");
  };
  const auto began = Clock::now();
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return told().size() == 1; }));
  EXPECT_LT(Clock::now() - began, milliseconds(2500)) << "the wait for its end is one";
  EXPECT_EQ(host_.services().registers().size(), 3u) << "parts of at most 3 ranges";
  ASSERT_EQ(told()[0].regions.size(), 8u);
  EXPECT_EQ(ReasonOf(told()[0].regions[7].status), v1::DRAINING);
}

TEST_F(Restore, ARefusedSessionIsTheEndAndSaysWhy) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegRead(*buffer);
  host_.Refuse(MakeError(v1::POLICY_DENIED, "rule 3 keeps you out"));
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return lost().size() == 1; }));
  EXPECT_EQ(ReasonOf(lost()[0]), v1::POLICY_DENIED);
  EXPECT_THAT(std::string(lost()[0].message()), HasSubstr("rule 3"));
  EXPECT_EQ(client.SessionStatus(), lost()[0]);
}

TEST_F(Restore, ADaemonThatIsDrainedOrBusyIsAskedAgain) {
  Client client = Attach();
  host_.Refuse(MakeError(v1::DRAINING, "ending"));
  host_.Restart();
  ASSERT_TRUE(Soon([&] { return host_.hellos().size() >= 3; }));
  host_.Refuse(std::nullopt);
  EXPECT_TRUE(Soon([&] { return told().size() == 1; }));
  EXPECT_TRUE(lost().empty());
}

TEST_F(Restore, WhoIsHungUpOnAgainAndAgainDoesNotHammer) {
  Client client = Attach();
  host_.drop_at_once = true;
  host_.HangUp();
  ASSERT_TRUE(Soon([&] { return host_.hellos().size() >= 2; }));
  std::this_thread::sleep_for(seconds(2));
  EXPECT_LE(host_.hellos().size(), 8u);
  const auto began = Clock::now();
  client.Detach();
  EXPECT_LT(Clock::now() - began, milliseconds(500));
}

TEST_F(Restore, DetachingMeanwhileReturnsAtOnceAndNothingIsTold) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegRead(*buffer);
  std::promise<void> under_way;
  std::atomic<bool> first = true;
  register_ = [&](int, const auto& request, auto* response) {
    if (first.exchange(false)) under_way.set_value();
    std::this_thread::sleep_for(seconds(1));
    return GrantFresh(1, request, response);
  };
  host_.Restart();
  under_way.get_future().wait();
  const auto began = Clock::now();
  client.Detach();
  region = absl::CancelledError();
  buffer = absl::CancelledError();
  { const Client gone = std::move(client); }
  EXPECT_LT(Clock::now() - began, milliseconds(700));
  EXPECT_TRUE(told().empty());
  EXPECT_TRUE(lost().empty());
}

TEST_F(Restore, ARegionDestroyedMeanwhileIsDeregistered) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegRead(*buffer);
  std::promise<void> under_way;
  std::atomic<bool> first = true;
  register_ = [&](int, const auto& request, auto* response) {
    if (first.exchange(false)) under_way.set_value();
    std::this_thread::sleep_for(milliseconds(300));
    return GrantFresh(1, request, response);
  };
  host_.Restart();
  under_way.get_future().wait();
  region = absl::CancelledError();
  ASSERT_TRUE(Soon([&] { return told().size() == 1; }));
  ASSERT_EQ(told()[0].regions.size(), 1u);
  EXPECT_TRUE(Soon([&] { return host_.services().deregisters().size() == 1; }));
  EXPECT_THAT(host_.services().deregisters().at(0).lease_ids(),
              ElementsAre(told()[0].regions[0].lease_id));
}

TEST_F(Restore, RegionsMayBeReadMeanwhile) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegRead(*buffer);
  ASSERT_TRUE(region.ok());
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done) {
      const auto keys = region->keys();
      EXPECT_EQ(keys.size(), 1u);
      EXPECT_EQ(keys[0].rkey, keys[0].lkey + 500'000);
      EXPECT_NE(region->lkey(), 0u);
      EXPECT_NE(region->lease_id(), 0u);
      EXPECT_NE(client.session_id(), 0u);
    }
  });
  for (size_t i = 1; i <= 3; ++i) {
    host_.Restart();
    EXPECT_TRUE(Soon([&] { return told().size() == i; }));
  }
  done = true;
  reader.join();
}

TEST_F(Restore, ACallbackMayDestroyTheClient) {
  std::unique_ptr<Client> client;
  std::promise<void> destroyed;
  auto made = Client::Attach({.socket_dir = host_.dir(), .on_rekeyed = [&](const Rekeyed&) {
                                client.reset();
                                destroyed.set_value();
                              }});
  ASSERT_TRUE(made.ok()) << made.status();
  client = std::make_unique<Client>(std::move(*made));
  host_.Restart();
  EXPECT_EQ(destroyed.get_future().wait_for(seconds(20)), std::future_status::ready);
}

TEST_F(Restore, AnAdminsSessionIsMadeAnewSilently) {
  std::filesystem::create_symlink(host_.dir(), host_.dir() + "-admin");
  {
    Client client = Attach({.admin = true});
    host_.Restart();
    EXPECT_TRUE(Soon([&] { return client.session_id() == 2; }));
    EXPECT_TRUE(client.UndrainDaemon().code() == absl::StatusCode::kUnimplemented) << "it is asked";
    EXPECT_TRUE(told().empty());
    EXPECT_TRUE(lost().empty());
  }
  std::filesystem::remove(host_.dir() + "-admin");
}

}  // namespace
}  // namespace mrd::testing
