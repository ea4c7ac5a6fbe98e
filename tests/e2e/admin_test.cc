// The operator's hand: what it sees, revokes and drains, and that nobody else has it.
#include <sys/prctl.h>
#include <unistd.h>

#include <fstream>

#include "gmock/gmock.h"
#include "tests/e2e/daemon_test.h"
#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

using testing::HasSubstr;
using testing::Not;

class AdminTest : public EachFabricTest {
 protected:
  v1::Session SessionOf(uint64_t id) {
    const auto listed = admin().ListSessions().response;
    for (const auto& session : listed.sessions()) {
      if (session.session_id() == id) return session;
    }
    return {};
  }
  v1::AttachEvent EventOf(RawClient& client) {
    const auto packet = client.attach().Receive();
    EXPECT_TRUE(packet && packet->has_event());
    return packet ? packet->event() : v1::AttachEvent();
  }
  bool LogSays(const std::string& text) {
    return WaitUntil(kPatience, [&] { return daemon().Log().find(text) != std::string::npos; });
  }

  const Memory memory_{kPage};
};
MRD_ON_EACH_FABRIC(AdminTest);

TEST_P(AdminTest, ASessionShowsItsCommandLineAndWhatItHoldsForNothing) {
  StartThis();
  Process client({.argv = {"tests/e2e/test_client", dir()}});
  ASSERT_EQ(client.Ask("attach").substr(0, 2), "ok");
  ASSERT_TRUE(WaitUntil(kPatience, [&] {
    const auto listed = admin().ListSessions().response;
    for (const auto& session : listed.sessions()) {
      if (session.command_line() == "tests/e2e/test_client " + dir()) return true;
    }
    return false;
  }));
  RawClient raw(dir());
  raw.Pass(memory_);
  const uint64_t claimed = raw.Pass(memory_);
  ASSERT_TRUE(raw.Register(RequestFor(claimed, memory_)).ok());
  const v1::Session session = SessionOf(raw.session_id());
  EXPECT_EQ(session.buffers(), 2u);
  EXPECT_EQ(session.unclaimed_buffers(), 1u);
  EXPECT_EQ(session.calls(), 2u) << "the first one, and Register";
  raw.ListLeases();
  EXPECT_EQ(SessionOf(raw.session_id()).calls(), 3u);
}

TEST_P(AdminTest, ACommandLineIsBoundedAndEscaped) {
  StartThis();
  Process client(
      {.argv = {"tests/e2e/test_client", dir(), "\x1b[2J\nline", std::string(100000, 'x')}});
  ASSERT_EQ(client.Ask("attach").substr(0, 2), "ok");
  std::string line;
  ASSERT_TRUE(WaitUntil(kPatience, [&] {
    const auto listed = admin().ListSessions().response;
    for (const auto& session : listed.sessions()) {
      if (session.pid() == client.pid()) line = session.command_line();
    }
    return !line.empty();
  }));
  EXPECT_THAT(line, HasSubstr("\\x1b[2J\\nline"));
  EXPECT_LE(line.size(), 1024u);
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST_P(AdminTest, RevokedLeasesAreFencedAndTheirSessionsTold) {
  StartThis();
  RawClient client(dir());
  const uint64_t lease = client.RegisterAll(memory_).lease_id();
  const uint64_t kept = client.RegisterAll(memory_).lease_id();
  const auto revoked = admin().RevokeLeases({lease}, "the \u00e4ther is full");
  ASSERT_TRUE(revoked.ok()) << revoked.text();
  EXPECT_EQ(revoked.response.revoked(), 1u);
  EXPECT_EQ(Look().regions, 1u);
  const v1::AttachEvent event = EventOf(client);
  EXPECT_EQ(event.kind(), v1::AttachEvent::REVOKED);
  ASSERT_EQ(event.lease_ids_size(), 1);
  EXPECT_EQ(event.lease_ids(0), lease);
  EXPECT_THAT(event.message(), HasSubstr("the \u00e4ther is full"));
  EXPECT_EQ(client.Deregister({lease}).reason(), v1::LEASE_UNKNOWN);
  EXPECT_TRUE(client.Deregister({kept}).ok());
  EXPECT_TRUE(LogSays("1 lease revoked by an admin"));
  EXPECT_THAT(daemon().Log(), testing::ContainsRegex("lease=" + std::to_string(lease)));
  EXPECT_THAT(daemon().Log(), HasSubstr("admin_uid=0 admin_pid=" + std::to_string(getpid())));
  EXPECT_TRUE(WaitUntil(kPatience, [&] {  // The page is up to a second old.
    return admin().GetMetrics().response.text().find("leases_ended_total{cause=\"revoked\"} 1") !=
           std::string::npos;
  }));
}

TEST_P(AdminTest, ARevokedSessionIsToldAndHungUpOn) {
  StartThis();
  RawClient client(dir());
  client.RegisterAll(memory_);
  ASSERT_TRUE(admin().RevokeSession(client.session_id(), "too much").ok());
  EXPECT_EQ(client.GetStatus().reason(), v1::SESSION_UNKNOWN) << "at once";
  const v1::AttachEvent event = EventOf(client);
  EXPECT_EQ(event.kind(), v1::AttachEvent::REVOKED);
  EXPECT_THAT(event.message(), HasSubstr("too much"));
  EXPECT_TRUE(client.attach().HangsUp());
  ExpectNothingHeld();
  EXPECT_TRUE(LogSays("session revoked by an admin: too much"));
  RawClient again(dir());
  EXPECT_TRUE(again.GetStatus().ok()) << "the process may attach anew";
}

TEST_P(AdminTest, WhatIsNotThereIsNotRevoked) {
  StartThis();
  RawClient client(dir());
  const uint64_t lease = client.RegisterAll(memory_).lease_id();
  for (const uint64_t unknown : {uint64_t{0}, lease + 12345, UINT64_MAX}) {
    ExpectRefusal(admin().RevokeLeases({lease, unknown}), v1::LEASE_UNKNOWN);
    ExpectRefusal(admin().RevokeSession(unknown), v1::NO_SUCH_SESSION);
  }
  ExpectRefusal(admin().RevokeLeases({}), v1::INVALID_LENGTH);
  ExpectRefusal(admin().RevokeLeases(std::vector<uint64_t>(10001, lease)), v1::INVALID_LENGTH);
  ExpectRefusal(admin().RevokeSession(admin().session_id()), v1::REQUEST_INVALID);
  ExpectRefusal(admin().ListAllEndpoints(UINT64_MAX), v1::NO_SUCH_SESSION);
  EXPECT_TRUE(client.Deregister({lease}).ok()) << "it stands";
}

TEST_P(AdminTest, AReasonIsBoundedAndPrintable) {
  StartThis();
  RawClient client(dir());
  const uint64_t lease = client.RegisterAll(memory_).lease_id();
  for (const std::string& reason :
       {std::string(257, 'x'), std::string(100000, 'x'), std::string("a\nb"),
        std::string("\x1b[2J"), std::string("a\0b", 3), std::string("\xc2\x9b")}) {
    ExpectRefusal(admin().RevokeLeases({lease}, reason), v1::REQUEST_INVALID);
    ExpectRefusal(admin().RevokeSession(client.session_id(), reason), v1::REQUEST_INVALID);
    ExpectRefusal(admin().Drain(reason), v1::REQUEST_INVALID);
  }
  // Larger than any request may be.
  EXPECT_FALSE(admin().RevokeLeases({lease}, std::string(10 << 20, 'x')).ok());
  EXPECT_FALSE(admin().Drain(std::string(10 << 20, 'x')).ok());
  EXPECT_FALSE(admin().GetStatus().response.has_drain());
  EXPECT_TRUE(admin().RevokeLeases({lease}, std::string(256, 'x')).ok());
}

TEST_P(AdminTest, OthersMayDoNoneOfIt) {
  StartThis();
  RawClient client(dir());
  const uint64_t lease = client.RegisterAll(memory_).lease_id();
  ExpectRefusal(client.ListAllEndpoints(), v1::POLICY_DENIED);
  ExpectRefusal(client.ListAllDomains(), v1::POLICY_DENIED);
  ExpectRefusal(client.RevokeLeases({lease}), v1::POLICY_DENIED);
  ExpectRefusal(client.RevokeSession(client.session_id()), v1::POLICY_DENIED);
  ExpectRefusal(client.Drain(), v1::POLICY_DENIED);
  ExpectRefusal(client.Undrain(), v1::POLICY_DENIED);
  ExpectRefusal(client.ReloadPolicy(), v1::POLICY_DENIED);
  EXPECT_TRUE(client.Deregister({lease}).ok());
}

TEST_P(AdminTest, DrainedItLetsNothingNewInAndWhatStandsGoesOn) {
  StartThis();
  RawClient client(dir());
  const uint64_t buffer = client.Pass(memory_);
  auto request = RequestFor(buffer, memory_);
  request.mutable_ttl()->set_seconds(60);
  ASSERT_TRUE(client.Register(request).ok());
  const auto drain = admin().Drain("new kernel");
  ASSERT_TRUE(drain.ok()) << drain.text();
  EXPECT_EQ(drain.response.drain().sessions_left(), 1u);
  EXPECT_FALSE(drain.response.drain().has_remaining());
  const v1::AttachEvent event = EventOf(client);
  EXPECT_EQ(event.kind(), v1::AttachEvent::DRAINING);
  EXPECT_THAT(event.message(), HasSubstr("new kernel"));
  ExpectRefusal(client.Register(RequestFor(buffer, memory_)), v1::DRAINING);
  ExpectRefusal(client.Listen(address()), v1::DRAINING);
  EXPECT_EQ(client.Renew().response.renewed(), 1u);
  EXPECT_EQ(client.GetStatus().response.drain().reason(), "new kernel");
  AttachSocket late(dir() + "/attach.sock");
  ASSERT_TRUE(late.SendHello());
  EXPECT_EQ(late.ReceiveRefusal(), v1::DRAINING);
  RawClient another(dir(), {.admin = true});
  EXPECT_TRUE(another.GetStatus().ok());
  ASSERT_TRUE(another.Undrain().ok());
  EXPECT_TRUE(another.Undrain().ok()) << "no error";
  EXPECT_FALSE(client.GetStatus().response.has_drain());
  EXPECT_TRUE(client.Register(RequestFor(buffer, memory_)).ok());
  RawClient fresh(dir());
  EXPECT_TRUE(fresh.GetStatus().ok());
}

TEST_P(AdminTest, AfterTheDeadlineOfADrainTheRestIsEnded) {
  StartThis();
  RawClient client(dir());
  client.RegisterAll(memory_);
  const auto drain = admin().Drain("", 1);
  ASSERT_TRUE(drain.ok()) << drain.text();
  EXPECT_TRUE(drain.response.drain().has_remaining());
  EXPECT_EQ(EventOf(client).cause(), v1::AttachEvent::CAUSE_UNSPECIFIED);
  EXPECT_EQ(EventOf(client).cause(), v1::AttachEvent::SHUTDOWN);
  EXPECT_TRUE(client.attach().HangsUp());
  ExpectNothingHeld();
  EXPECT_TRUE(admin().GetStatus().response.has_drain()) << "until it is taken back";
}

TEST_P(AdminTest, DeadlinesOfAnyKindAreTakenOrRefused) {
  StartThis();
  RawClient client(dir());
  ExpectRefusal(admin().Drain("", -1), v1::REQUEST_INVALID);
  ExpectRefusal(admin().Drain("", INT64_MIN), v1::REQUEST_INVALID);
  EXPECT_FALSE(client.GetStatus().response.has_drain());
  const auto centuries = admin().Drain("", INT64_MAX);
  ASSERT_TRUE(centuries.ok()) << centuries.text();
  EXPECT_GT(centuries.response.drain().remaining().seconds(), 364 * 86400);
  EXPECT_TRUE(client.GetStatus().ok());
}

TEST_P(AdminTest, ADrainedDaemonEndsInOrder) {
  StartThis();
  RawClient client(dir());
  client.RegisterAll(memory_);
  ASSERT_TRUE(admin().Drain("soon").ok());
  Stop();
}

TEST_P(AdminTest, ReloadSaysWhereTheFileIsWrongAndKeepsTheOldPolicy) {
  StartThis({.policy = "rules { name: \"one\" uid: 0 }"});
  const auto write = [&](const std::string& text) {
    std::ofstream(daemon().policy_file()) << text;
  };
  write("rules { name: \"one\" uid: 0 }\nrules { name: \"two\" uid: 1 }");
  EXPECT_EQ(admin().ReloadPolicy().response.rules(), 2u);
  write("rules {\n  name: \"one\"\n  no_such: 1\n}");
  const auto refused = admin().ReloadPolicy();
  ExpectRefusal(refused, v1::POLICY_INVALID);
  EXPECT_THAT(refused.text(), HasSubstr(":3:3"));
  std::string many;
  for (int i = 0; i < 1000; ++i)
    many += "rules { name: \"" + std::string(60, 'n') + "\" uid: 1 }\n";
  write(many);
  ExpectRefusal(admin().ReloadPolicy(), v1::POLICY_INVALID);
  remove(daemon().policy_file().c_str());
  ExpectRefusal(admin().ReloadPolicy(), v1::POLICY_INVALID);
  RawClient client(dir());
  EXPECT_EQ(client.GetStatus().response.policy().rule(), "one");
}

TEST_P(AdminTest, EndpointsOfAllSessionsAreListed) {
  StartThis();
  RawClient one(dir());
  RawClient two(dir());
  const auto first = one.Listen(address());
  const auto second = two.Listen(address());
  ASSERT_TRUE(first.ok() && second.ok()) << first.text() << second.text();
  const auto all = admin().ListAllEndpoints();
  ASSERT_EQ(all.response.endpoints_size(), 2) << all.text();
  EXPECT_EQ(all.response.endpoints(0).session_id(), one.session_id());
  EXPECT_EQ(all.response.endpoints(1).endpoint().local_port(),
            second.response.endpoint().local_port());
  EXPECT_EQ(admin().ListAllEndpoints(two.session_id()).response.endpoints_size(), 1);
}

TEST_P(AdminTest, ADrainOfPostedWorkHasNothingToWaitFor) {
  StartThis();
  RawClient client(dir());
  const uint64_t lease = client.RegisterAll(memory_).lease_id();
  v1::DeregisterRequest request;
  request.add_lease_ids(lease);
  request.mutable_drain()->set_seconds(-1);
  ExpectRefusal(client.DeregisterWith(request), v1::REQUEST_INVALID);
  EXPECT_EQ(Look().regions, 1u);
  request.mutable_drain()->set_seconds(3600);
  const auto began = Clock::now();
  EXPECT_TRUE(client.DeregisterWith(request).ok());
  EXPECT_LT(Clock::now() - began, Promised(seconds(2)));
  EXPECT_EQ(Look().regions, 0u);
}

}  // namespace
}  // namespace mrd::e2e
