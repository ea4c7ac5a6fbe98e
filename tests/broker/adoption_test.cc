#include "daemon/broker/adoption.h"

#include "daemon/broker/add_keys.h"
#include "daemon/broker/generations.h"
#include "tests/broker/adoption_fixture.h"
#include "tests/host/captured_log.h"

namespace mrd::broker {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(AdoptionTest, ASessionGoesOnWithItsLeasesAndConnections) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  Put(Kind::kEndpoint, EndpointRecord(71, 20, "f2"));
  ASSERT_TRUE(Adopt().ok());
  EXPECT_EQ(counts_.sessions, 1u);
  EXPECT_EQ(counts_.regions, 1u);
  EXPECT_EQ(counts_.endpoints, 1u);
  EXPECT_EQ(counts_.ended_objects, 0u);
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 4096u);
  EXPECT_EQ(broker_->books().Used(kUid).endpoints, 1u);
  EXPECT_THAT(LeaseIds(), ElementsAre(70));

  const std::string token(kToken, 16);
  EXPECT_EQ(ReasonOf(broker_->Find(token).status()), v1::SESSION_AWAITED);
  EXPECT_EQ(ReasonOf(Resume(kPid + 1).status()), v1::SESSION_UNKNOWN) << "another process";
  EXPECT_EQ(ReasonOf(Resume(kPid, kStart + 1).status()), v1::SESSION_UNKNOWN)
      << "one that has its pid since";
  const auto session = Resume();
  ASSERT_TRUE(session.ok());
  EXPECT_EQ((*session)->id, 3u);
  EXPECT_TRUE(broker_->Find(token).ok());
  EXPECT_EQ(ReasonOf(Resume().status()), v1::SESSION_UNKNOWN) << "twice";

  EXPECT_TRUE(Deregister(*session, {70}).ok());
  EXPECT_THAT(Kernel().mrs, IsEmpty());
  EXPECT_THAT(Kernel().qps, ElementsAre(20));
  EndAndWait(*session);
  EXPECT_THAT(Kernel().qps, IsEmpty());
  EXPECT_THAT(Kernel().pds, IsEmpty());
  EXPECT_THAT(store_.names(), IsEmpty()) << "the descriptors have left the store";
  EXPECT_EQ(Records(Kind::kDevice), 0u);
}

TEST_F(AdoptionTest, WhatNoRecordClaimsIsEnded) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  LeaseRecord(71, 6);            // Registered, and not written down.
  EndpointRecord(72, 20, "f2");  // Connected, and not written down.
  kernel_.pds.insert(2);
  ASSERT_TRUE(Adopt().ok());
  const auto kernel = Kernel();
  EXPECT_EQ(kernel.mrs.size(), 1u);
  EXPECT_EQ(kernel.mrs.count(5), 1u);
  EXPECT_THAT(kernel.qps, IsEmpty());
  EXPECT_THAT(kernel.cqs, IsEmpty());
  EXPECT_THAT(kernel.pds, ElementsAre(1));
  EXPECT_THAT(store_.names(), ElementsAre("f1"));
}

TEST_F(AdoptionTest, WhatCannotBeReadEndsAndIsSaid) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  LeaseRecord(71, 6);
  ASSERT_TRUE(slots_->Put(Kind::kLease, "\377").ok());
  ASSERT_TRUE(slots_->Put(Kind::kEndpoint, "\377").ok());
  host::CapturedLog log;
  ASSERT_TRUE(Adopt().ok());
  EXPECT_THAT(log.Taken(), testing::HasSubstr("2 records in the ledger cannot be read"));
  EXPECT_THAT(LeaseIds(), ElementsAre(70));
  EXPECT_EQ(Kernel().mrs.size(), 1u);
}

TEST_F(AdoptionTest, AProcessThatHasEndedHasNothing) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  Put(Kind::kEndpoint, EndpointRecord(71, 20, "f2"));
  ASSERT_TRUE(Adopt(/*alive=*/{}).ok());
  EXPECT_EQ(counts_.ended_sessions, 1u);
  EXPECT_THAT(Kernel().mrs, IsEmpty());
  EXPECT_THAT(Kernel().pds, IsEmpty());
  EXPECT_THAT(store_.names(), IsEmpty());
  EXPECT_EQ(broker_->session_count(), 0u);
}

TEST_F(AdoptionTest, CountsAsUnfinishedUntilItsEnd) {
  Put(Kind::kSession, session_);
  uint64_t during = 0;
  const auto look = [this, &during](const Identity&) {
    during = ledger_->slots().counter(Slots::kUnfinishedAdoptions);
    return false;
  };
  slots_->SetCounter(Slots::kUnfinishedAdoptions, 6);
  ledger_ = std::make_unique<ledger::Ledger>(std::move(slots_), store_);
  broker_->SetLedger(*ledger_);
  EXPECT_TRUE(Adoption(*broker_, *ledger_, std::move(fds_), look).Run().ok());
  EXPECT_EQ(during, 7u);
  EXPECT_EQ(ledger_->slots().counter(Slots::kUnfinishedAdoptions), 0u);
}

TEST_F(AdoptionTest, WhoDiesOrDoesNotComeBackIsEnded) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  session_.set_id(4);
  session_.set_token("another token 16");
  session_.set_pid(kPid + 1);
  Put(Kind::kSession, session_);
  ASSERT_TRUE(Adopt({kPid, kPid + 1}).ok());
  const auto now = std::chrono::steady_clock::now();
  broker_->SweepAwaited([](const Identity&) { return true; }, now);
  EXPECT_EQ(broker_->awaited(), 2u);
  broker_->SweepAwaited([](const Identity& who) { return who.pid == kPid; }, now);
  EXPECT_EQ(broker_->awaited(), 1u) << "the other one has died";
  broker_->SweepAwaited([](const Identity&) { return true; }, now + Adoption::kGrace);
  EXPECT_EQ(broker_->awaited(), 0u);
  while (broker_->session_count() > 0) std::this_thread::yield();
  EXPECT_THAT(Kernel().mrs, IsEmpty());
}

TEST_F(AdoptionTest, AHandleThatIsAnotherRegionsByNowIsNotTaken) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  pb::Lease other_key = LeaseRecord(70, 5);
  other_key.mutable_keys(0)->set_rkey(1);
  Put(Kind::kLease, other_key);
  pb::Lease other_address = LeaseRecord(71, 6);
  other_address.set_addr(kAddress + 4096);
  Put(Kind::kLease, other_address);
  pb::Lease other_length = LeaseRecord(72, 7);
  other_length.set_length(8192);
  Put(Kind::kLease, other_length);
  ASSERT_TRUE(Adopt().ok());
  EXPECT_THAT(LeaseIds(), IsEmpty());
  EXPECT_THAT(Kernel().mrs, IsEmpty());
}

TEST_F(AdoptionTest, ALedgerThatContradictsItselfIsClosedWhole) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  session_.set_id(4);
  session_.set_token("another token 16");
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(71, 6));  // In the protection domain of the first session.
  EXPECT_TRUE(absl::IsDataLoss(Adopt()));
  EXPECT_EQ(broker_->session_count(), 0u);
  EXPECT_THAT(Kernel().mrs, IsEmpty());
  EXPECT_THAT(Kernel().pds, IsEmpty());
  EXPECT_THAT(store_.names(), IsEmpty());
}

TEST_F(AdoptionTest, LeasesOfACallCountOnceItIsWrittenDown) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  pb::Lease lease = LeaseRecord(70, 5);
  lease.set_call(90);
  Put(Kind::kLease, lease);
  lease = LeaseRecord(71, 6);
  lease.set_call(91);
  Put(Kind::kLease, lease);
  pb::Call call;
  call.set_id(91);
  call.set_session_id(3);
  call.set_request_id("twice");
  call.set_fingerprint(8);
  call.add_lease_ids(71);
  call.add_lease_ids(72);  // Has ended since.
  Put(Kind::kCall, call);
  ASSERT_TRUE(Adopt().ok());
  EXPECT_THAT(LeaseIds(), ElementsAre(71));
  EXPECT_EQ(Kernel().mrs.count(5), 0u);

  const auto session = Resume();
  ASSERT_TRUE(session.ok());
  Pass(*session, 1);
  RegisterSpec repeat = Spec({Range(0, 4096), Range(4096, 4096)});
  repeat.request_id = "twice";
  repeat.fingerprint = 8;
  const auto answer = Register(*session, repeat);
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ((*answer)->size(), 2u);
  EXPECT_EQ((**answer)[0].id, 71u);
  EXPECT_EQ((**answer)[0].keys[0].rkey, 61u);
  EXPECT_EQ((**answer)[1].id, 72u);
  EXPECT_THAT((**answer)[1].keys, IsEmpty());
  EXPECT_TRUE(Deregister(*session, {71}).ok());
  EXPECT_EQ(Records(Kind::kCall), 0u) << "it goes with its last lease";
}

// Otherwise a client that registers many and ends all but one, again and again, fills the ledger.
TEST_F(AdoptionTest, TheLedgerKeepsNoMoreAnswersThanTheSessionRemembers) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  const auto many = static_cast<int>(RequestLog::kMostViews);
  for (int i = 0; i < 3; ++i) {  // Of the run before: one lease of each lives.
    const uint64_t first = 100'000 * (i + 1);
    pb::Lease lease = LeaseRecord(first, 5 + i);
    lease.set_call(7 + i);
    Put(Kind::kLease, lease);
    pb::Call call;
    call.set_id(7 + i);
    call.set_session_id(3);
    call.set_request_id("old " + std::to_string(i));
    for (int k = 0; k < many; ++k) call.add_lease_ids(first + k);
    Put(Kind::kCall, call);
  }
  ASSERT_TRUE(Adopt().ok());
  EXPECT_EQ(Records(Kind::kCall), 3u);
  EXPECT_LE(LeasesInCalls(), 2 * many);
  const auto session = Resume();
  ASSERT_TRUE(session.ok());
  Pass(*session, 1);
  RegisterSpec spec = Spec(std::vector<RangeSpec>(many, Range(0, 4096)));
  spec.newest_only = true;
  for (const char* request : {"", "", "a", "b", "c"}) {
    spec.request_id = request;
    const auto answer = Register(*session, spec);
    ASSERT_TRUE(answer.ok()) << answer.status();
    std::vector<uint64_t> ids;
    for (const LeaseView& view : **answer) ids.push_back(view.id);
    ids.pop_back();
    ASSERT_TRUE(Deregister(*session, ids).ok());
  }
  EXPECT_EQ(Records(Kind::kCall), 8u) << "each has a lease";
  EXPECT_LE(LeasesInCalls(), 2 * many);
  spec.request_id = "c";
  const auto repeated = Register(*session, spec);
  ASSERT_TRUE(repeated.ok());
  EXPECT_EQ(LeaseIds().size(), 8u) << "the first answer";
}

TEST_F(AdoptionTest, ALeaseWhoseTimeRanOutMeanwhileLapsesAtOnce) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  pb::Lease lease = LeaseRecord(70, 5);
  lease.set_ttl(1'000'000'000);
  Put(Kind::kLease, lease);  // Its stamp is 0: at the boot.
  ASSERT_TRUE(Adopt().ok());
  broker_->EndLapsed(std::chrono::steady_clock::now());
  while (!LeaseIds().empty()) std::this_thread::yield();
  while (!Kernel().mrs.empty()) std::this_thread::yield();
}

TEST_F(AdoptionTest, WithoutTheDevicesDescriptorNothingIsTakenOver) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  kernel_ = {};
  fds_.clear();
  ASSERT_TRUE(Adopt().ok());
  EXPECT_EQ(counts_.sessions, 1u) << "it may register anew";
  EXPECT_THAT(LeaseIds(), IsEmpty());
  EXPECT_EQ(Records(Kind::kDevice), 0u);
}

TEST_F(AdoptionTest, ForeignAndDoubledDescriptorsAreClosed) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  Put(Kind::kEndpoint, EndpointRecord(71, 20, "f2"));
  fds_.emplace("f2", UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)));
  fds_.emplace("alien", UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)));
  store_.Add("alien", 0).IgnoreError();
  ASSERT_TRUE(Adopt().ok());
  EXPECT_THAT(LeaseIds(), ElementsAre(70));
  EXPECT_EQ(counts_.endpoints, 0u) << "nobody knows which of the two it was";
  EXPECT_THAT(Kernel().qps, IsEmpty());
  EXPECT_THAT(store_.names(), ElementsAre("f1"));
}

TEST_F(AdoptionTest, ADeviceThatWentAwayMeanwhileHasNothingLeft) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  kernel_.removed = true;
  ASSERT_TRUE(Adopt().ok());
  EXPECT_THAT(LeaseIds(), IsEmpty());
  EXPECT_THAT(store_.names(), IsEmpty());
}

TEST_F(AdoptionTest, MoreRegionsThanTheKernelListsAreAllLookedAt) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  for (uint32_t i = 0; i < 250; ++i) Put(Kind::kLease, LeaseRecord(1000 + i, 10 + i));
  for (uint32_t i = 0; i < 20; ++i) LeaseRecord(0, 500 + i);  // Not written down.
  slots_->RaiseCounter(Slots::kMostHandle, 519);
  ASSERT_TRUE(Adopt().ok());
  EXPECT_EQ(LeaseIds().size(), 250u);
  EXPECT_EQ(Kernel().mrs.size(), 250u);
}

TEST_F(AdoptionTest, APeerThatLeftMeanwhileIsNoticed) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kEndpoint, EndpointRecord(71, 20, "f2"));
  peer_.reset();  // Its descriptor is readable.
  ASSERT_TRUE(Adopt().ok());
  Endpoints endpoints(*broker_);
  const SessionRef session = broker_->SessionById(3);
  while (endpoints.List(session)[0].state != v1::Endpoint::DISCONNECTED) {
    std::this_thread::yield();
  }
  while (store_.names().count("f2") != 0) std::this_thread::yield();
  EXPECT_EQ(store_.removers().count("mrd-cm"), 0u)
      << "the store may block: not the fabric's thread";
}

TEST_F(AdoptionTest, AConnectionThatCannotBeWatchedCountsAsLost) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kEndpoint, EndpointRecord(71, 20, "f2"));
  fds_.find("f2")->second = UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC));  // epoll refuses it.
  ASSERT_TRUE(Adopt().ok());
  Endpoints endpoints(*broker_);
  EXPECT_EQ(endpoints.List(broker_->SessionById(3))[0].state, v1::Endpoint::DISCONNECTED);
}

TEST_F(AdoptionTest, AListenerInADomainThatNobodyIsInHasEnded) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  pb::Endpoint listener;
  listener.set_id(71);
  listener.set_session_id(3);
  listener.set_listening(true);
  listener.set_local_address("0.0.0.0");
  listener.set_local_port(4001);
  listener.set_backlog(16);
  Put(Kind::kEndpoint, listener);
  listener.set_id(72);
  listener.set_local_port(4002);
  listener.set_domain("shared");
  listener.set_domain_id(500);
  Put(Kind::kEndpoint, listener);
  ASSERT_TRUE(Adopt().ok());
  Endpoints endpoints(*broker_);
  const auto views = endpoints.List(broker_->SessionById(3));
  ASSERT_EQ(views.size(), 1u);
  EXPECT_EQ(views[0].id, 71u);
}

TEST_F(AdoptionTest, WhatLiesOnADeviceThatWasUnpluggedMeanwhileEnds) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  Put(Kind::kEndpoint, EndpointRecord(71, 20, "f2"));
  kernel_.unplugged = true;
  ASSERT_TRUE(Adopt().ok());
  EXPECT_THAT(LeaseIds(), IsEmpty());
  while (!Kernel().mrs.empty() || !Kernel().qps.empty()) std::this_thread::yield();
  while (!store_.names().empty()) std::this_thread::yield();  // Else the kernel's removal waits.
  const auto session = Resume();
  ASSERT_TRUE(session.ok());
  Pass(*session, 1);
  EXPECT_TRUE(Register(*session, Spec({Range(0, 4096)})).ok()) << "one plugged since";
}

TEST_F(AdoptionTest, KeysAreTheNewestFirstHoweverTheyWereWrittenDown) {
  Put(Kind::kSession, session_);
  Put(Kind::kDevice, device_);
  // Of the run after that, which has added keys.
  UniqueFd second(open("/dev/null", O_RDWR | O_CLOEXEC));
  fake::FakeUverbs::Context kernel;
  kernel.pds = {2};
  kernel.mrs[6] = {60, 61, 4096, kAddress};
  kernel.pd_of[6] = 2;
  static_cast<fake::FakeUverbs&>(verbs_.uverbs()).Put(second.get(), kernel);
  fds_.emplace("f3", std::move(second));
  store_.Add("f3", 0).IgnoreError();
  device_.set_fd_name("f3");
  device_.set_generation(1);
  Put(Kind::kDevice, device_);
  pb::Lease lease = LeaseRecord(70, 5);
  pb::Key* const added = lease.add_keys();
  added->set_device("fake0");
  added->set_generation(1);
  added->set_handle(6);
  added->set_pd(2);
  added->set_lkey(60);
  added->set_rkey(61);
  Put(Kind::kLease, lease);
  ASSERT_TRUE(Adopt().ok());
  const auto page = broker_->Leases(nullptr, 0, 10);
  ASSERT_EQ(page.leases.size(), 1u);
  const auto& keys = page.leases[0].second.keys;
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].rkey, 61u);
  EXPECT_EQ(keys[1].rkey, 51u);
}

TEST_F(AdoptionTest, ANewRegionIsReachableOverOldConnectionsOrIsRefused) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kEndpoint, EndpointRecord(71, 20, "f2"));
  ASSERT_TRUE(Adopt().ok());
  const auto session = Resume();
  ASSERT_TRUE(session.ok());
  Pass(*session, 1);
  auto both = Register(*session, Spec({Range(0, 4096)}));
  ASSERT_TRUE(both.ok()) << both.status();
  ASSERT_EQ((**both)[0].keys.size(), 2u);
  EXPECT_EQ((**both)[0].keys[0].device->generation, 1u) << "the newest first";
  EXPECT_EQ((**both)[0].keys[1].device->generation, 0u);
  EXPECT_EQ(Kernel().mrs.size(), 1u);
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 8192u);
  EXPECT_TRUE(Deregister(*session, {(**both)[0].id}).ok());
  EXPECT_THAT(Kernel().mrs, IsEmpty());

  auto kernel = Kernel();
  kernel.takes_registrations = false;
  static_cast<fake::FakeUverbs&>(verbs_.uverbs()).Put(context_, kernel);
  EXPECT_EQ(ReasonOf(Register(*session, Spec({Range(0, 4096)})).status()), v1::UNSUPPORTED);
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 0u);
  RegisterSpec newest = Spec({Range(0, 4096)});
  newest.newest_only = true;
  const auto one = Register(*session, newest);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ((**one)[0].keys.size(), 1u);
}

TEST_F(AdoptionTest, OldLeasesGetKeysForNewConnections) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  Put(Kind::kLease, LeaseRecord(70, 5));
  ASSERT_TRUE(Adopt().ok());
  const auto session = Resume();
  ASSERT_TRUE(session.ok());
  const auto add = [&](std::vector<LeaseBuffer> leases) {
    std::promise<RegisterResult> done;
    AddKeys::Start(*broker_, *session, std::move(leases),
                   [&done](RegisterResult result) { done.set_value(std::move(result)); });
    return done.get_future().get();
  };
  EXPECT_EQ(ReasonOf(add({{70, 1}}).status()), v1::BUFFER_UNKNOWN);
  Pass(*session, 1);
  EXPECT_EQ(ReasonOf(add({{7, 1}}).status()), v1::LEASE_UNKNOWN);
  EXPECT_EQ(ReasonOf(add({}).status()), v1::INVALID_LENGTH);
  EXPECT_EQ(ReasonOf(add({{70, 1}, {70, 1}}).status()), v1::REQUEST_INVALID);
  for (int i = 0; i < 2; ++i) {
    const auto added = add({{70, 1}});
    ASSERT_TRUE(added.ok()) << added.status();
    ASSERT_EQ((**added)[0].keys.size(), 2u);
    EXPECT_EQ((**added)[0].keys[0].device->generation, 1u);
    EXPECT_EQ((**added)[0].keys[1].rkey, 51u) << "the old key goes on";
    EXPECT_EQ(broker_->books().Used(kUid).bytes, 8192u);
    EXPECT_EQ(broker_->books().Used(kUid).regions, 2u);
  }
  EXPECT_EQ(Records(Kind::kLease), 1u);
  const auto generations = Generations(*broker_, broker_->All());
  ASSERT_EQ(generations.size(), 2u);
  EXPECT_TRUE(generations[0].newest);
  EXPECT_EQ(generations[0].regions, 1u);
  EXPECT_FALSE(generations[1].newest);
  EXPECT_EQ(generations[1].regions, 1u);
  EXPECT_EQ(*LeaveGeneration(*broker_, "fake0", 0, "please"), 1u);
  EXPECT_EQ(link_->events.back().kind, v1::AttachEvent::LEAVE_GENERATION);
  EXPECT_EQ(ReasonOf(LeaveGeneration(*broker_, "fake0", 7, "").status()), v1::GENERATION_UNKNOWN);
  EXPECT_TRUE(Deregister(*session, {70}).ok());
  EXPECT_EQ(broker_->books().Used(kUid).bytes, 0u);
  EXPECT_THAT(Kernel().mrs, IsEmpty());
}

TEST_F(AdoptionTest, DomainsAreThoseTheyWereAndGoByTheirIdNotTheirName) {
  Put(Kind::kDevice, device_);
  Put(Kind::kSession, session_);
  pb::Membership member;
  member.set_session_id(3);
  member.set_domain_id(500);
  member.set_name("shared");
  member.set_owner(kUid);
  member.set_mode(0600);
  Put(Kind::kMembership, member);
  pb::Lease lease = LeaseRecord(70, 5);
  lease.set_domain("shared");
  lease.set_domain_id(500);
  Put(Kind::kLease, lease);
  lease = LeaseRecord(71, 6);  // Of an older one of this name, which nobody is in any more.
  kernel_.pds.insert(2);
  kernel_.pd_of[6] = 2;
  lease.mutable_keys(0)->set_pd(2);
  lease.set_domain("shared");
  lease.set_domain_id(499);
  Put(Kind::kLease, lease);
  ASSERT_TRUE(Adopt().ok());
  EXPECT_THAT(LeaseIds(), ElementsAre(70, 71));
  const auto session = Resume();
  ASSERT_TRUE(session.ok());
  const auto domain = broker_->JoinedDomain(**session, "shared");
  ASSERT_TRUE(domain.ok());
  EXPECT_EQ((*domain)->id, 500u);
  ASSERT_EQ((*domain)->domains.Adopted("fake0").size(), 1u);
  EXPECT_EQ((*domain)->domains.Adopted("fake0")[0].domain->handle(), 1u);
}

TEST_F(AdoptionTest, ALedgerIsLookedForOnceAndReplacedWhereItCannotBeBelieved) {
  const auto dup = [](int fd) { return UniqueFd(fcntl(fd, F_DUPFD_CLOEXEC, 0)); };
  FakeStore store;
  StoredFds fds;
  fds.emplace("ledger", dup(slots_->fd()));
  Put(Kind::kSession, session_);
  const auto expect_kept = [&] {
    StoredFds again;
    again.emplace("ledger", dup(slots_->fd()));
    const auto opened = OpenLedger(again, store);
    ASSERT_TRUE(opened.ok());
    EXPECT_THAT(store.names(), IsEmpty()) << "nothing was given up";
  };
  // Each fails, or is killed, before it adopts.
  for (int start = 0; start < 25; ++start) expect_kept();
  // It was another version that crashed.
  slots_->SetCounter(Slots::kCrashedAdoptions, 3);
  const uint32_t other = slots_->version() + 1;
  ASSERT_EQ(pwrite(slots_->fd(), &other, sizeof other, 8), 4);
  expect_kept();
  EXPECT_EQ(slots_->version(), other - 1);
  slots_->SetCounter(Slots::kCrashedAdoptions, 3);
  fds.emplace("f9", UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)));
  store.Add("f9", 0).IgnoreError();
  const auto clean = OpenLedger(fds, store);
  ASSERT_TRUE(clean.ok());
  EXPECT_EQ((*clean)->counter(Slots::kCrashedAdoptions), 0u);
  EXPECT_THAT(fds, IsEmpty());
  EXPECT_THAT(store.names(), ElementsAre("ledger"));

  slots_->SetCounter(Slots::kCrashedAdoptions, 0);
  slots_->SetCounter(Slots::kUnfinishedAdoptions, 20);
  fds.emplace("ledger", dup(slots_->fd()));
  const auto unfinished = OpenLedger(fds, store);
  ASSERT_TRUE(unfinished.ok());
  EXPECT_EQ((*unfinished)->counter(Slots::kUnfinishedAdoptions), 0u);

  StoredFds two;
  two.emplace("ledger", dup(slots_->fd()));
  two.emplace("ledger", dup(slots_->fd()));
  ASSERT_TRUE(OpenLedger(two, store).ok());
  EXPECT_THAT(two, IsEmpty());
}

}  // namespace
}  // namespace mrd::broker
