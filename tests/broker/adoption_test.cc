// A second run of the daemon on what a first one left in a faked kernel.
#include "daemon/broker/adoption.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <random>

#include "daemon/broker/add_keys.h"
#include "daemon/broker/generations.h"
#include "tests/broker/broker_fixture.h"
#include "tests/fake/fake_uverbs.h"

namespace mrd::broker {
namespace {

namespace pb = ledger::pb;
using ledger::Kind;
using ledger::Slots;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr pid_t kPid = 4711;
constexpr uint64_t kStart = 99;
constexpr char kToken[] = "0123456789abcdef";

class FakeStore final : public ledger::Store {
 public:
  absl::Status Add(const std::string& name, int) override {
    MutexLock lock(mutex_);
    if (names_.size() >= limit()) return absl::ResourceExhaustedError("full");
    names_.insert(name);
    return absl::OkStatus();
  }
  void Remove(const std::string& name) override {
    MutexLock lock(mutex_);
    names_.erase(name);
  }
  size_t limit() const override { return 10; }
  size_t used() const override {
    MutexLock lock(mutex_);
    return names_.size();
  }
  std::set<std::string> names() {
    MutexLock lock(mutex_);
    return names_;
  }

 private:
  mutable Mutex mutex_;
  std::set<std::string> names_ MRD_GUARDED_BY(mutex_);
};

class AdoptionTest : public BrokerTest {
 protected:
  AdoptionTest() : BrokerTest("devices=fake0"), slots_(*Slots::Create()) {
    session_.set_id(3);
    session_.set_token(kToken, 16);
    session_.set_pid(kPid);
    session_.set_start_time(kStart);
    session_.set_uid(kUid);
    // Any character device stands for a context.
    UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    struct stat file;
    fstat(null.get(), &file);
    device_.set_fd_name("f1");
    device_.set_name("fake0");
    device_.set_generation(0);  // Before those of this run, which begin with 1.
    device_.set_driver_id(fake::FakeUverbs::kDriver);
    device_.set_rdev(file.st_rdev);
    device_.set_any_address(true);
    device_.set_max_region_bytes(UINT64_MAX);
    device_.set_access(~0u);
    context_ = null.get();
    fds_.emplace("f1", std::move(null));
    store_.Add("f1", 0).IgnoreError();
    kernel_.pds = {1};
  }

  void Put(Kind kind, const google::protobuf::MessageLite& message) {
    ASSERT_TRUE(slots_->Put(kind, message.SerializeAsString()).ok());
  }

  // A lease with a region of this handle in domain 1; the kernel has it.
  pb::Lease LeaseRecord(uint64_t id, uint32_t handle) {
    kernel_.mrs[handle] = {handle * 10, handle * 10 + 1, 4096, kAddress};
    kernel_.pd_of[handle] = 1;
    pb::Lease lease;
    lease.set_id(id);
    lease.set_session_id(session_.id());
    lease.set_buffer_id(1);
    lease.set_length(4096);
    lease.set_addr(kAddress);
    lease.set_access(fabric::Bit(v1::LOCAL_WRITE));
    pb::Key* const key = lease.add_keys();
    key->set_device("fake0");
    key->set_handle(handle);
    key->set_pd(1);
    key->set_lkey(handle * 10);
    key->set_rkey(handle * 10 + 1);
    return lease;
  }

  // A connection with this queue pair; its descriptor is one end of a pipe.
  pb::Endpoint EndpointRecord(uint64_t id, uint32_t qp, const std::string& fd_name) {
    kernel_.qps.insert(qp);
    kernel_.cqs.insert(qp + 1);
    kernel_.pd_of[qp] = 1;
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    fds_.emplace(fd_name, UniqueFd(ends[0]));
    peer_ = UniqueFd(ends[1]);
    store_.Add(fd_name, 0).IgnoreError();
    pb::Endpoint endpoint;
    endpoint.set_id(id);
    endpoint.set_session_id(session_.id());
    endpoint.set_device("fake0");
    endpoint.set_fd_name(fd_name);
    endpoint.set_qp(qp);
    endpoint.set_cq(qp + 1);
    endpoint.set_pd(1);
    return endpoint;
  }

  absl::Status Adopt(std::set<pid_t> alive = {kPid}) {
    static_cast<fake::FakeUverbs&>(verbs_.uverbs()).Put(context_, kernel_);
    ledger_ = std::make_unique<ledger::Ledger>(std::move(slots_), store_);
    broker_->SetLedger(*ledger_);
    Adoption adoption(*broker_, *ledger_, std::move(fds_),
                      [alive](const Identity& who) { return alive.count(who.pid) != 0; });
    const absl::Status adopted = adoption.Run();
    counts_ = adoption.counts();
    return adopted;
  }
  fake::FakeUverbs::Context Kernel() {
    return static_cast<fake::FakeUverbs&>(verbs_.uverbs()).Get(context_);
  }
  absl::StatusOr<SessionRef> Resume(pid_t pid = kPid, uint64_t start = kStart) {
    Identity who;
    who.pid = pid;
    who.start_time = start;
    who.uid = kUid;
    return broker_->Resume(who, std::string(kToken, 16), link_);
  }
  std::vector<uint64_t> LeaseIds() {
    std::vector<uint64_t> ids;
    for (const auto& [session, view] : broker_->Leases(nullptr, 0, 1000).leases) {
      ids.push_back(view.id);
    }
    return ids;
  }
  size_t Records(Kind kind) {
    size_t count = 0;
    ledger_->slots().ForEach(kind, [&count](Slots::Id, std::string_view) { ++count; });
    return count;
  }

  ~AdoptionTest() override {
    // All sessions end before their ledger does.
    for (const SessionRef& session : broker_->All()) EndAndWait(session);
    if (ledger_) {
      EXPECT_EQ(Records(Kind::kLease) + Records(Kind::kSession) + Records(Kind::kCall) +
                    Records(Kind::kEndpoint) + Records(Kind::kMembership),
                0u);
      const auto left = Kernel();
      EXPECT_TRUE(left.removed ||
                  (left.mrs.empty() && left.qps.empty() && left.cqs.empty() && left.pds.empty()));
    }
    EXPECT_EQ(static_cast<fake::FakeUverbs&>(verbs_.uverbs()).busy(), 0);
  }

  const std::shared_ptr<FakeLink> link_ = std::make_shared<FakeLink>();
  FakeStore store_;
  std::unique_ptr<Slots> slots_;
  std::unique_ptr<ledger::Ledger> ledger_;
  StoredFds fds_;
  fake::FakeUverbs::Context kernel_;
  int context_ = -1;
  UniqueFd peer_;
  pb::Session session_;
  pb::Device device_;
  Adoption::Counts counts_;
};

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
  const auto generations = Generations(*broker_);
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
  for (int start = 0; start < 5; ++start) {  // Each is killed before it is through.
    StoredFds again;
    again.emplace("ledger", dup(slots_->fd()));
    const auto opened = OpenLedger(again, store);
    ASSERT_TRUE(opened.ok());
    EXPECT_THAT(store.names(), IsEmpty()) << "nothing was given up";
  }
  slots_->SetCounter(Slots::kCrashedAdoptions, 3);
  fds.emplace("f9", UniqueFd(open("/dev/null", O_RDWR | O_CLOEXEC)));
  store.Add("f9", 0).IgnoreError();
  const auto clean = OpenLedger(fds, store);
  ASSERT_TRUE(clean.ok());
  EXPECT_EQ((*clean)->counter(Slots::kCrashedAdoptions), 0u);
  EXPECT_THAT(fds, IsEmpty());
  EXPECT_THAT(store.names(), ElementsAre("ledger"));

  StoredFds two;
  two.emplace("ledger", dup(slots_->fd()));
  two.emplace("ledger", dup(slots_->fd()));
  ASSERT_TRUE(OpenLedger(two, store).ok());
  EXPECT_THAT(two, IsEmpty());
}

// Whatever the records say: no region without a lease, no lease without its region.
class NoisyRecordsTest : public AdoptionTest, public testing::WithParamInterface<int> {};

TEST_P(NoisyRecordsTest, BooksEqualTheKernel) {
  std::mt19937 random(GetParam());
  const auto noise = [&random](uint64_t value) {
    return random() % 12 == 0 ? 1 + random() % 9 : value;
  };
  Put(Kind::kDevice, device_);
  for (uint64_t id = 3; id < 6; ++id) {
    session_.set_id(noise(id));
    session_.set_token("token " + std::to_string(id) + "         ");
    Put(Kind::kSession, session_);
    pb::Call call;
    call.set_id(noise(id));
    call.set_session_id(noise(id));
    call.set_request_id("request");
    call.add_lease_ids(noise(70));
    Put(Kind::kCall, call);
    const auto pd = static_cast<uint32_t>(id);
    kernel_.pds.insert(pd);
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t handle = pd * 10 + i;
      pb::Lease lease = LeaseRecord(noise(handle), handle);
      kernel_.pd_of[handle] = pd;
      lease.set_session_id(noise(id));
      lease.mutable_keys(0)->set_pd(pd);
      lease.mutable_keys(0)->set_handle(noise(handle));
      if (random() % 10 == 0) lease.mutable_keys(0)->set_rkey(random() % 100);
      lease.set_call(noise(0));
      lease.set_revision(noise(0));
      lease.set_length(random() % 20 == 0 ? random() : 4096);
      Put(Kind::kLease, lease);
    }
    pb::Endpoint endpoint = EndpointRecord(noise(id + 100), pd * 100, "e" + std::to_string(id));
    kernel_.pd_of[pd * 100] = pd;
    endpoint.set_pd(pd);
    endpoint.set_session_id(noise(id));
    endpoint.set_qp(noise(pd * 100));
    Put(Kind::kEndpoint, endpoint);
  }
  Adopt().IgnoreError();
  EXPECT_EQ(Kernel().mrs.size(), broker_->books().Total().regions);
  EXPECT_EQ(Kernel().mrs.size(), LeaseIds().size());
  EXPECT_EQ(Kernel().qps.size(), broker_->books().Total().endpoints);
}

INSTANTIATE_TEST_SUITE_P(Seeds, NoisyRecordsTest, testing::Range(0, 300));

}  // namespace
}  // namespace mrd::broker
