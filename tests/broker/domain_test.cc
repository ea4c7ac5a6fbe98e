#include <gtest/gtest.h>

#include "tests/broker/broker_fixture.h"

namespace mrd::broker {
namespace {

constexpr uint32_t kOther = 1001;
constexpr uint32_t kGroup = 7;

class DomainTest : public BrokerTest {
 protected:
  SessionRef AttachAs(uint32_t uid, uint32_t gid) {
    auto session = broker_->Attach({.pid = 1, .uid = uid, .gid = gid, .comm = "", .death = ""},
                                   "test", std::make_shared<FakeLink>());
    EXPECT_TRUE(session.ok()) << session.status();
    return *session;
  }
  v1::Reason Open(const SessionRef& session, const std::string& name, mode_t mode = 0) {
    return ReasonOf(
        broker_->OpenDomain(*session, {.name = name, .create = mode != 0, .mode = mode}).status());
  }
  absl::Status Close(const SessionRef& session, const std::string& name) {
    std::promise<absl::Status> closed;
    broker_->CloseDomain(session, name,
                         [&](absl::Status status) { closed.set_value(std::move(status)); });
    return closed.get_future().get();
  }
  RegisterResult RegisterIn(const SessionRef& session, const std::string& domain) {
    RegisterSpec spec = Spec({Range(0, 4096)});
    spec.domain = domain;
    return Register(session, spec);
  }
};

TEST_F(DomainTest, MembersShareOneProtectionDomainAndOthersHaveTheirOwn) {
  const auto owner = AttachAs(kUid, kGroup);
  const auto member = AttachAs(kOther, kGroup);
  for (const auto& each : {owner, member}) Pass(each, 1);
  EXPECT_EQ(Open(owner, "ring", 0660), v1::REASON_UNSPECIFIED);
  EXPECT_EQ(Open(member, "ring"), v1::REASON_UNSPECIFIED);
  ASSERT_TRUE(RegisterIn(owner, "ring").ok());
  const auto second = RegisterIn(member, "ring");
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(*(**second)[0].domain, "ring");
  EXPECT_EQ(verbs_.live().pds, 1);
  ASSERT_TRUE(RegisterIn(member, "").ok());
  EXPECT_EQ(verbs_.live().pds, 2);
  EndAndWait(owner);
  EXPECT_EQ(verbs_.live().pds, 2) << "another member is in it";
  EndAndWait(member);
  EXPECT_EQ(verbs_.live().pds, 0);
}

TEST_F(DomainTest, OwnerGroupAndModeDecideAsOfAFile) {
  const auto owner = AttachAs(kUid, kGroup);
  const auto group = AttachAs(kOther, kGroup);
  const auto other = AttachAs(kOther, kGroup + 1);
  ASSERT_EQ(Open(owner, "mine", 0600), v1::REASON_UNSPECIFIED);
  ASSERT_EQ(Open(owner, "ours", 0660), v1::REASON_UNSPECIFIED);
  ASSERT_EQ(Open(owner, "all", 0666), v1::REASON_UNSPECIFIED);
  ASSERT_EQ(Open(owner, "not-group", 0606), v1::REASON_UNSPECIFIED);
  EXPECT_EQ(Open(group, "mine"), v1::DOMAIN_FORBIDDEN);
  EXPECT_EQ(Open(group, "mine", 0666), v1::DOMAIN_FORBIDDEN) << "create changes nothing";
  EXPECT_EQ(Open(group, "ours"), v1::REASON_UNSPECIFIED);
  EXPECT_EQ(Open(group, "not-group"), v1::DOMAIN_FORBIDDEN);
  EXPECT_EQ(Open(other, "ours"), v1::DOMAIN_FORBIDDEN);
  EXPECT_EQ(Open(other, "all"), v1::REASON_UNSPECIFIED);
  EXPECT_EQ(Open(other, "not-group"), v1::REASON_UNSPECIFIED);
  const auto names = [&](const SessionRef& session) {
    std::string names;
    for (const auto& view : broker_->named_domains().List(session->identity)) {
      names += view.name + " ";
    }
    return names;
  };
  EXPECT_EQ(names(owner), "all mine not-group ours ");
  EXPECT_EQ(names(group), "all ours ");
  EXPECT_EQ(names(other), "all not-group ");
}

TEST_F(DomainTest, WhoMakesOneDoesNotJoinAStrangersThatAdmitsMore) {
  const auto stranger = AttachAs(kOther, kGroup);
  const auto session = AttachAs(kUid, kGroup);
  const auto elsewhere = AttachAs(kUid, kGroup + 1);
  ASSERT_EQ(Open(stranger, "all", 0666), v1::REASON_UNSPECIFIED);
  ASSERT_EQ(Open(stranger, "ours", 0660), v1::REASON_UNSPECIFIED);
  ASSERT_EQ(Open(stranger, "not-group", 0606), v1::REASON_UNSPECIFIED);
  EXPECT_EQ(Open(session, "all", 0600), v1::DOMAIN_FORBIDDEN);
  EXPECT_EQ(Open(session, "all", 0660), v1::DOMAIN_FORBIDDEN);
  EXPECT_EQ(Open(session, "ours", 0600), v1::DOMAIN_FORBIDDEN);
  EXPECT_EQ(Open(elsewhere, "not-group", 0660), v1::DOMAIN_FORBIDDEN);
  EXPECT_TRUE(broker_->Domains("", 10).front().members == 1) << "nobody joined";
  // What it asks for, or whatever there is.
  EXPECT_EQ(Open(session, "ours", 0660), v1::REASON_UNSPECIFIED);
  EXPECT_EQ(Open(session, "all", 0666), v1::REASON_UNSPECIFIED);
  EXPECT_EQ(Open(elsewhere, "not-group"), v1::REASON_UNSPECIFIED);
  // Its own is its own affair.
  const auto again = AttachAs(kUid, kGroup);
  ASSERT_EQ(Open(session, "mine", 0666), v1::REASON_UNSPECIFIED);
  EXPECT_EQ(Open(again, "mine", 0600), v1::REASON_UNSPECIFIED);
}

TEST_F(DomainTest, OnlyMembersRegisterInIt) {
  const auto owner = AttachAs(kUid, kGroup);
  const auto other = AttachAs(kOther, kGroup);
  ASSERT_EQ(Open(owner, "ring", 0666), v1::REASON_UNSPECIFIED);
  Pass(other, 1);
  EXPECT_EQ(ReasonOf(RegisterIn(other, "ring").status()), v1::DOMAIN_UNKNOWN);
  ASSERT_EQ(Open(other, "ring"), v1::REASON_UNSPECIFIED);
  ASSERT_TRUE(RegisterIn(other, "ring").ok());
  ASSERT_TRUE(Close(other, "ring").ok());
  EXPECT_EQ(ReasonOf(RegisterIn(other, "ring").status()), v1::DOMAIN_UNKNOWN);
  EXPECT_EQ(ReasonOf(Close(other, "ring")), v1::DOMAIN_UNKNOWN);
}

TEST_F(DomainTest, EndsWithItsLastMemberAndWhatLiesInItStays) {
  const auto owner = AttachAs(kUid, kGroup);
  Pass(owner, 1);
  ASSERT_EQ(Open(owner, "ring", 0600), v1::REASON_UNSPECIFIED);
  const auto lease = RegisterIn(owner, "ring");
  ASSERT_TRUE(lease.ok());
  ASSERT_TRUE(Close(owner, "ring").ok());
  EXPECT_EQ(Open(owner, "ring"), v1::DOMAIN_UNKNOWN);
  EXPECT_EQ(verbs_.live().mrs, 1);
  EXPECT_EQ(verbs_.live().pds, 1);
  // The name is free, for another one.
  const auto other = AttachAs(kOther, kGroup);
  ASSERT_EQ(Open(other, "ring", 0600), v1::REASON_UNSPECIFIED);
  Pass(other, 1);
  ASSERT_TRUE(RegisterIn(other, "ring").ok());
  EXPECT_EQ(verbs_.live().pds, 2);
  ASSERT_TRUE(Deregister(owner, {(**lease)[0].id}).ok());
  EXPECT_EQ(verbs_.live().pds, 1);
}

TEST_F(DomainTest, RefusesBadNamesModesAndGroups) {
  const auto session = AttachAs(kUid, kGroup);
  for (const std::string name : {"", "a b", "a/b", "\n", "\xc3\xa4"}) {
    EXPECT_EQ(Open(session, name, 0600), v1::REQUEST_INVALID) << name;
  }
  EXPECT_EQ(Open(session, std::string(65, 'x'), 0600), v1::REQUEST_INVALID);
  EXPECT_EQ(Open(session, std::string(100000, 'x'), 0600), v1::REQUEST_INVALID);
  EXPECT_EQ(Open(session, std::string(64, 'x'), 0600), v1::REASON_UNSPECIFIED);
  for (const mode_t mode : {0060u, 0640u, 0666u | 01000u, 0777u, 0604u, ~0u}) {
    EXPECT_EQ(Open(session, "a", mode), v1::REQUEST_INVALID) << mode;
  }
  EXPECT_EQ(
      ReasonOf(
          broker_
              ->OpenDomain(*session,
                           {.name = "a", .create = true, .group_given = true, .group = kGroup + 1})
              .status()),
      v1::REQUEST_INVALID);
}

TEST_F(DomainTest, AUserOwnsSoManyAtMost) {
  const auto session = AttachAs(kUid, kGroup);
  const auto other = AttachAs(kOther, kGroup);
  for (size_t i = 0; i < NamedDomains::kMostOfUser; ++i) {
    ASSERT_EQ(Open(session, std::to_string(i), 0600), v1::REASON_UNSPECIFIED);
  }
  EXPECT_EQ(Open(session, "one-more", 0600), v1::QUOTA_DOMAINS);
  EXPECT_EQ(Open(other, "one-more", 0600), v1::REASON_UNSPECIFIED);
  ASSERT_TRUE(Close(session, "7").ok());
  EXPECT_EQ(Open(session, "another", 0600), v1::REASON_UNSPECIFIED);
}

TEST_F(DomainTest, IsOpenedAndClosedByManyAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      const auto session = AttachAs(kUid, kGroup);
      Pass(session, 1);
      for (int i = 0; i < 200; ++i) {
        ASSERT_EQ(Open(session, "ring", 0600), v1::REASON_UNSPECIFIED);
        ASSERT_TRUE(RegisterIn(session, "ring").ok());
        broker_->named_domains().List(session->identity);
        ASSERT_TRUE(Close(session, "ring").ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace mrd::broker
