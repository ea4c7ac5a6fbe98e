// Connections made after a restart of the daemon lie in a new generation, and need keys of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/remote_region.h"
#include "mrd/v1/status.h"
#include "tests/client/fake_host.h"

namespace mrd::testing {
namespace {

using ::testing::ElementsAre;

class NewKeys : public ::testing::Test {
 protected:
  Client Attach() {
    auto client =
        Client::Attach({.socket_dir = host_.dir(), .on_rekeyed = [this](const Rekeyed& rekeyed) {
                          std::lock_guard lock(mutex_);
                          told_.push_back(rekeyed);
                        }});
    EXPECT_TRUE(client.ok()) << client.status();
    return std::move(*client);
  }
  std::vector<Rekeyed> told() {
    std::lock_guard lock(mutex_);
    return told_;
  }
  // A daemon whose devices are of the second generation.
  void Restart() {
    const size_t hellos = host_.hellos().size();
    host_.Restart();
    ASSERT_TRUE(Soon([&] { return host_.hellos().size() > hellos; }));
  }

  // Keys of generation 2 before those of generation 1, as the daemon answers.
  static absl::Status Add(const v1::AddKeysRequest& request, v1::AddKeysResponse* response) {
    for (const v1::LeaseBuffer& each : request.leases()) {
      v1::Lease* lease = response->add_leases();
      lease->set_lease_id(each.lease_id());
      for (const uint64_t generation : {2, 1}) {
        v1::Key* key = lease->add_keys();
        key->set_device("fake0");
        key->set_generation(generation);
        key->set_lkey(static_cast<uint32_t>(each.lease_id() + 1'000 * (generation - 1)));
        key->set_rkey(static_cast<uint32_t>(each.lease_id() + 500'000 + 1'000 * (generation - 1)));
      }
    }
    return absl::OkStatus();
  }
  static absl::Status Connected(v1::Endpoint* endpoint) {
    endpoint->set_endpoint_id(77);
    endpoint->set_device("fake0");
    endpoint->set_generation(2);
    return absl::OkStatus();
  }

  std::function<absl::Status(const v1::AddKeysRequest&, v1::AddKeysResponse*)> add_ = Add;
  FakeHost host_{/*store=*/true, [this](FakeServices& services) {
                   services.on_register = [](int, const auto& request, auto* response) {
                     return GrantFresh(1, request, response);
                   };
                   services.on_connect = Connected;
                   services.on_accept = Connected;
                   services.on_add_keys = add_;
                 }};

 private:
  std::mutex mutex_;
  std::vector<Rekeyed> told_;
};

TEST_F(NewKeys, AreThereWhenConnectReturns) {
  Client client = Attach();
  ASSERT_TRUE(client.OpenDomain("job").ok());
  auto buffer = client.CreateBuffer(4096);
  const Range range(*buffer);
  auto region = client.RegWrite(range);
  auto in_domain = client.Register({.preset = v1::Access::REG_WRITE, .domain = "job"}, {&range, 1});
  auto gone = client.RegWrite(range);
  ASSERT_TRUE(region.ok() && in_domain.ok() && gone.ok());
  ASSERT_TRUE(gone->Deregister().ok());
  const uint64_t lease = region->lease_id();
  const uint32_t old_rkey = region->rkey();
  Restart();
  auto endpoint = client.Connect({.address = "peer", .port = 1});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();

  const auto added = host_.services().added();
  ASSERT_EQ(added.size(), 1u);
  ASSERT_EQ(added[0].leases_size(), 1) << "the live ones in the endpoint's domain";
  EXPECT_EQ(added[0].leases(0).lease_id(), lease);
  ASSERT_TRUE(Soon([&] { return host_.passed().size() == 2; }));
  EXPECT_EQ(host_.passed()[1], host_.passed()[0]);
  EXPECT_EQ(added[0].leases(0).buffer_id(), host_.passed()[1].first);

  ASSERT_EQ(region->keys().size(), 2u);
  EXPECT_EQ(region->KeyFor(*endpoint)->rkey, old_rkey + 1'000);
  EXPECT_EQ(region->KeyIn("fake0", 1)->rkey, old_rkey);
  EXPECT_EQ(region->KeyIn("fake0", 3), std::nullopt);
  EXPECT_EQ(region->rkey(), old_rkey + 1'000) << "the newest";
  EXPECT_EQ(region->key("fake0")->generation, 2u);
  EXPECT_EQ(RemoteRegionOf(*region)->rkey, old_rkey + 1'000);
  EXPECT_EQ(region->lease_id(), lease);

  ASSERT_TRUE(Soon([&] { return told().size() == 1; }));
  EXPECT_EQ(told()[0].why, Rekeyed::Why::kNewGeneration);
  ASSERT_EQ(told()[0].regions.size(), 1u);
  EXPECT_EQ(told()[0].regions[0].old_lease_id, lease);
  EXPECT_EQ(told()[0].regions[0].lease_id, lease);
  EXPECT_EQ(told()[0].regions[0].old_keys.size(), 1u);
  EXPECT_EQ(told()[0].regions[0].keys.size(), 2u);

  // Nothing is missing any more.
  ASSERT_TRUE(client.Connect({.address = "peer", .port = 1}).ok());
  EXPECT_EQ(host_.services().added().size(), 1u);
}

TEST_F(NewKeys, AreThereWhenAcceptReturnsInTheListenersDomain) {
  Client client = Attach();
  ASSERT_TRUE(client.OpenDomain("job").ok());
  auto buffer = client.CreateBuffer(4096);
  const Range range(*buffer);
  auto region = client.RegWrite(range);
  auto in_domain = client.Register({.preset = v1::Access::REG_WRITE, .domain = "job"}, {&range, 1});
  auto listener = client.Listen({.domain = "job"});
  ASSERT_TRUE(region.ok() && in_domain.ok() && listener.ok());
  Restart();
  auto endpoint = listener->Accept("");
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_EQ((*in_domain)[0].keys().size(), 2u);
  EXPECT_TRUE((*in_domain)[0].KeyFor(*endpoint));
  EXPECT_EQ(region->keys().size(), 1u);
}

TEST_F(NewKeys, ThatCannotBeAddedAreToldAndTheConnectionStands) {
  add_ = [](const v1::AddKeysRequest&, v1::AddKeysResponse*) {
    return MakeError(v1::QUOTA_BYTES, "booked twice is too much");
  };
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegWrite(*buffer);
  ASSERT_TRUE(region.ok());
  Restart();
  auto endpoint = client.Connect({.address = "peer", .port = 1});
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  EXPECT_EQ(region->KeyFor(*endpoint), std::nullopt);
  ASSERT_TRUE(Soon([&] { return told().size() == 1; }));
  ASSERT_EQ(told()[0].regions.size(), 1u);
  EXPECT_EQ(ReasonOf(told()[0].regions[0].status), v1::QUOTA_BYTES);
  EXPECT_EQ(told()[0].regions[0].lease_id, region->lease_id());
  EXPECT_EQ(told()[0].regions[0].keys.size(), 1u);
}

TEST_F(NewKeys, ALeaseThatHasEndedDoesNotKeepTheOthers) {
  std::atomic<uint64_t> ended = 0;
  add_ = [&](const v1::AddKeysRequest& request, v1::AddKeysResponse* response) {
    for (const auto& each : request.leases()) {
      if (each.lease_id() == ended) return MakeError(v1::LEASE_UNKNOWN, "no such lease");
    }
    return Add(request, response);
  };
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  std::vector<Region> regions;
  for (int i = 0; i < 7; ++i) regions.push_back(std::move(*client.RegWrite(*buffer)));
  ended = regions[4].lease_id();
  Restart();
  ASSERT_TRUE(client.Connect({.address = "peer", .port = 1}).ok());
  for (size_t i = 0; i < regions.size(); ++i) {
    EXPECT_EQ(regions[i].keys().size(), i == 4 ? 1u : 2u) << i;
  }
}

TEST_F(NewKeys, AreNotAskedForWhereTheDaemonWasNotRestarted) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegWrite(*buffer);
  ASSERT_TRUE(client.Connect({.address = "peer", .port = 1}).ok());
  EXPECT_TRUE(host_.services().added().empty());
}

// The daemon decides where it registers: it is told what the caller chose, again when the region is
// made anew.
TEST_F(NewKeys, ARegionMayBeForConnectionsFromNowOnOnly) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  const Range range(*buffer);
  ASSERT_TRUE(client.RegWrite(range).ok());
  auto newest =
      client.Register({.preset = v1::Access::REG_WRITE, .newest_only = true}, {&range, 1});
  ASSERT_TRUE(newest.ok()) << newest.status();
  const auto asked = host_.services().registers();
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_FALSE(asked[0].newest_only());
  EXPECT_TRUE(asked[1].newest_only());
}

TEST_F(NewKeys, CanBeAddedBeforeAPeerIsToldOfThem) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegWrite(*buffer);
  ASSERT_TRUE(region.ok());
  ASSERT_TRUE(buffer->Release().ok());
  Restart();
  const auto rekeyed = client.AddKeys();
  ASSERT_TRUE(rekeyed.ok()) << rekeyed.status();
  ASSERT_EQ(rekeyed->regions.size(), 1u);
  EXPECT_EQ(rekeyed->regions[0].keys.size(), 2u);
  EXPECT_EQ(region->keys().size(), 2u);
  // Its buffer was not to be left with the daemon.
  EXPECT_EQ(host_.services().released().size(), 1u);
  const auto again = client.AddKeys();
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->regions.empty());
}

// A Register meanwhile names what stays with the daemon, not what the call lets go of.
TEST_F(NewKeys, AnAddedBufferIsNobodyElsesMeanwhile) {
  std::atomic<int> calls = 0;
  std::atomic<bool> answer = false;
  add_ = [&](const v1::AddKeysRequest& request, v1::AddKeysResponse* response) {
    ++calls;
    while (!answer) std::this_thread::yield();
    return Add(request, response);
  };
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegWrite(*buffer);
  ASSERT_TRUE(region.ok());
  ASSERT_TRUE(buffer->Release().ok());
  Restart();
  std::thread adds([&] { EXPECT_TRUE(client.AddKeys().ok()); });
  EXPECT_TRUE(Soon([&] { return calls > 0; }));
  auto meanwhile = client.RegWrite(*buffer);
  answer = true;
  adds.join();
  ASSERT_TRUE(meanwhile.ok()) << meanwhile.status();
  const auto registers = host_.services().registers();
  const uint64_t named = registers.back().ranges(0).buffer_id();
  const auto added = host_.services().added();
  ASSERT_EQ(added.size(), 1u);
  EXPECT_NE(named, added[0].leases(0).buffer_id());
  EXPECT_THAT(host_.services().released(), ::testing::Not(::testing::Contains(named)));
}

// The operator asks; what becomes of the connections is their user's to say.
TEST_F(NewKeys, LeaveGenerationIsOnlyTold) {
  std::mutex mutex;
  std::vector<v1::AttachEvent> events;
  auto client =
      Client::Attach({.socket_dir = host_.dir(), .on_event = [&](const v1::AttachEvent& event) {
                        std::lock_guard lock(mutex);
                        events.push_back(event);
                      }});
  ASSERT_TRUE(client.ok());
  auto buffer = client->CreateBuffer(4096);
  auto region = client->RegWrite(*buffer);
  v1::AttachEvent event;
  event.set_kind(v1::AttachEvent::LEAVE_GENERATION);
  event.set_device("fake0");
  event.set_generation(1);
  host_.Tell(event);
  EXPECT_TRUE(Soon([&] {
    std::lock_guard lock(mutex);
    return events.size() == 1 && events[0].generation() == 1;
  }));
  EXPECT_TRUE(host_.services().added().empty());
  client->Detach();
}

}  // namespace
}  // namespace mrd::testing
