// Leases: their ids, their lists and their end.
#include <set>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

class LeasesTest : public EachFabricTest {};
MRD_ON_EACH_FABRIC(LeasesTest);

TEST_P(LeasesTest, S10AnOldLeaseIdOnTheSameRangeIsUnknownAndTheNewLeaseUntouched) {
  StartThis();
  RawClient client(dir());
  const Memory memory(kPage);
  const uint64_t buffer = client.Pass(memory);
  const auto old_lease = client.Register(RequestFor(buffer, memory)).response.leases(0);
  ASSERT_TRUE(client.Deregister({old_lease.lease_id()}).ok());
  const auto new_lease = client.Register(RequestFor(buffer, memory)).response.leases(0);
  EXPECT_GT(new_lease.lease_id(), old_lease.lease_id());
  const Holdings before = Look();
  for (int i = 0; i < 3; ++i) {
    const auto answer = client.Deregister({old_lease.lease_id()});
    EXPECT_EQ(answer.reason(), v1::LEASE_UNKNOWN) << answer.text();
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::NOT_FOUND);
  }
  EXPECT_EQ(Look(), before);
  const auto listed = client.ListLeases().response;
  ASSERT_EQ(listed.leases_size(), 1);
  EXPECT_EQ(listed.leases(0).lease_id(), new_lease.lease_id());
  EXPECT_EQ(listed.leases(0).keys(0).rkey(), new_lease.keys(0).rkey());
}

TEST_P(LeasesTest, S10ALeaseIdOfAnEarlierDaemonIsUnknownToThisOne) {
  StartThis();
  const Memory memory(kPage);
  uint64_t old_id;
  {
    const DaemonProcess earlier({.fabric = GetParam()});
    RawClient client(earlier.dir());
    old_id = client.RegisterAll(memory).lease_id();
  }
  RawClient client(dir());
  const v1::Lease lease = client.RegisterAll(memory);
  EXPECT_NE(lease.lease_id(), old_id);
  EXPECT_EQ(client.Deregister({old_id}).reason(), v1::LEASE_UNKNOWN);
  EXPECT_EQ(client.ListLeases().response.leases_size(), 1);
}

TEST_P(LeasesTest, DeregisterEndsAllOrNone) {
  StartThis();
  RawClient client(dir());
  RawClient stranger(dir());
  const Memory memory(kPage);
  const uint64_t one = client.RegisterAll(memory).lease_id();
  const uint64_t two = client.RegisterAll(memory).lease_id();
  const uint64_t foreign = stranger.RegisterAll(memory).lease_id();
  const Holdings before = Look();
  const std::vector<std::vector<uint64_t>> wrong = {
      {one, two, two + 1000}, {one, two, one}, {one, foreign, two}, {0}, {UINT64_MAX}};
  for (const auto& ids : wrong) {
    EXPECT_EQ(client.Deregister(ids).reason(), v1::LEASE_UNKNOWN);
    EXPECT_EQ(Look(), before);
  }
  EXPECT_EQ(client.Deregister({}).reason(), v1::INVALID_LENGTH);
  const auto too_many = client.Deregister(std::vector<uint64_t>(10001, one));
  EXPECT_EQ(too_many.reason(), v1::INVALID_LENGTH);
  EXPECT_EQ(too_many.detail.limit(), 10000u);
  EXPECT_EQ(Look(), before);
  EXPECT_TRUE(client.Deregister({two, one}).ok());
  EXPECT_EQ(client.ListLeases().response.leases_size(), 0);
  EXPECT_EQ(stranger.ListLeases().response.leases_size(), 1);
}

TEST_P(LeasesTest, ListLeasesShowsEachOnceInPagesById) {
  StartThis();
  RawClient client(dir());
  const int count = 2500;
  const Memory memory(kPage);
  auto request = RequestFor(client.Pass(memory), memory);
  for (int i = 1; i < count; ++i) *request.add_ranges() = request.ranges(0);
  const auto made = client.Register(request);
  ASSERT_TRUE(made.ok()) << made.text();
  std::set<uint64_t> expected;
  for (const v1::Lease& lease : made.response.leases()) expected.insert(lease.lease_id());

  for (const uint32_t page_size : {0u, 7u * 100u, 1000000u}) {
    std::set<uint64_t> seen;
    uint64_t after = 0;
    std::vector<int> pages;
    do {
      const auto page = client.ListLeases(after, page_size);
      ASSERT_TRUE(page.ok()) << page.text();
      pages.push_back(page.response.leases_size());
      for (const v1::Lease& lease : page.response.leases()) {
        EXPECT_TRUE(seen.empty() || lease.lease_id() > *seen.rbegin()) << "by id";
        seen.insert(lease.lease_id());
      }
      after = page.response.next_after_lease_id();
    } while (after != 0);
    EXPECT_EQ(seen, expected);
    const std::vector<int> in_thousands = {1000, 1000, 500};
    EXPECT_EQ(pages, page_size == 700 ? std::vector<int>({700, 700, 700, 400}) : in_thousands);
  }
  EXPECT_EQ(client.ListLeases(*expected.rbegin()).response.leases_size(), 0);
}

TEST_P(LeasesTest, AnAdminSeesTheLeasesOfAllSessionsInPages) {
  StartThis();
  RawClient one(dir(), {.name = "one"});
  RawClient two(dir(), {.name = "two"});
  const Memory memory(kPage);
  const uint64_t first = one.RegisterAll(memory).lease_id();
  const uint64_t second = two.RegisterAll(memory).lease_id();
  const uint64_t third = one.RegisterAll(memory).lease_id();
  std::vector<std::pair<uint64_t, uint64_t>> seen;
  uint64_t after = 0;
  do {
    const auto page = admin().ListAllLeases(0, after, 1);
    ASSERT_TRUE(page.ok()) << page.text();
    for (const auto& held : page.response.leases()) {
      seen.emplace_back(held.session_id(), held.lease().lease_id());
    }
    after = page.response.next_after_lease_id();
  } while (after != 0);
  const std::vector<std::pair<uint64_t, uint64_t>> expected = {
      {one.session_id(), first}, {two.session_id(), second}, {one.session_id(), third}};
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(admin().ListAllLeases(two.session_id()).response.leases_size(), 1);
  EXPECT_EQ(admin().ListAllLeases(999999).reason(), v1::NO_SUCH_SESSION);

  std::vector<std::string> names;
  after = 0;
  do {
    const auto page = admin().ListSessions(after, 1);
    for (const auto& session : page.response.sessions()) names.push_back(session.name());
    after = page.response.next_after_session_id();
  } while (after != 0);
  EXPECT_EQ(names, std::vector<std::string>({"admin", "one", "two"}));
}

TEST_P(LeasesTest, RegisterAndDeregisterOverAndOverLeaveEverythingFlat) {
  StartThis();
  RawClient client(dir());
  const int rounds = Scaled(3000);
  const Memory memory(1 << 20);
  const uint64_t buffer = client.Pass(memory);
  Resources before;
  for (int i = 0; i < rounds; ++i) {
    const uint64_t length = 1 + (static_cast<uint64_t>(i) * 7919) % memory.size();
    const auto made = client.Register(RequestFor(buffer, memory.addr(), length));
    ASSERT_TRUE(made.ok()) << made.text();
    ASSERT_TRUE(client.Deregister({made.response.leases(0).lease_id()}).ok());
    if (i == rounds / 10) before = daemon().resources();
  }
  const Resources after = daemon().resources();
  EXPECT_EQ(after.fds, before.fds);
  EXPECT_EQ(after.shared_mappings, before.shared_mappings);
  if (!kSanitized) {  // A sanitizer maps memory of its own.
    EXPECT_LE(after.mappings, before.mappings + 16);
  }
}

class DeregisterErrorsTest : public DaemonTest {
 protected:
  DeregisterErrorsTest() { Start({.fabric = "verbs"}); }
};

TEST_F(DeregisterErrorsTest, ALeaseThatTheDeviceDoesNotEndStandsAndTheCallCanBeRepeated) {
  RawClient client(dir());
  const Memory memory(kPage);
  const uint64_t one = client.RegisterAll(memory).lease_id();
  const uint64_t two = client.RegisterAll(memory).lease_id();
  daemon().Control("fail fake0 dereg EBUSY@1");
  const auto answer = client.Deregister({one, two});
  EXPECT_EQ(answer.reason(), v1::DEVICE_ERROR) << answer.text();
  EXPECT_EQ(answer.detail.errno_name(), "EBUSY");
  const auto left = client.ListLeases().response;
  ASSERT_EQ(left.leases_size(), 1) << "the other one has ended";
  EXPECT_EQ(left.leases(0).lease_id(), one);
  EXPECT_EQ(client.GetStatus().response.session().pinned_bytes(), kPage);
  EXPECT_TRUE(client.Deregister({one}).ok());
}

// EIO is a driver's word for much; the kernel's for a device that is gone.
TEST_F(DeregisterErrorsTest, EioEndsALeaseOnlyWhereItsDeviceHasGone) {
  RawClient client(dir());
  const Memory memory(kPage);
  const uint64_t lease = client.RegisterAll(memory).lease_id();
  daemon().Control("fail fake0 dereg EIO@1");
  EXPECT_EQ(client.Deregister({lease}).reason(), v1::DEVICE_ERROR);
  EXPECT_EQ(client.GetStatus().response.session().regions(), 1u);
  daemon().Control("unplug fake0");
  EXPECT_TRUE(
      WaitUntil(kPatience, [&] { return client.GetStatus().response.session().regions() == 0; }));
}

}  // namespace
}  // namespace mrd::e2e
