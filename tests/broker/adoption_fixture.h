// A second run of the daemon on what a first one left in a faked kernel.
#ifndef MRD_TESTS_BROKER_ADOPTION_FIXTURE_H_
#define MRD_TESTS_BROKER_ADOPTION_FIXTURE_H_

#include <fcntl.h>
#include <gmock/gmock.h>
#include <pthread.h>
#include <sys/stat.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/broker/adoption.h"
#include "tests/broker/broker_fixture.h"
#include "tests/fake/fake_uverbs.h"

namespace mrd::broker {

namespace pb = ledger::pb;
using ledger::Kind;
using ledger::Slots;

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
    char thread[16] = "";
    pthread_getname_np(pthread_self(), thread, sizeof thread);
    MutexLock lock(mutex_);
    names_.erase(name);
    removers_.insert(thread);
  }
  size_t limit() const override { return limit_; }
  void SetLimit(size_t limit) { limit_ = limit; }
  size_t used() const override {
    MutexLock lock(mutex_);
    return names_.size();
  }
  std::set<std::string> names() {
    MutexLock lock(mutex_);
    return names_;
  }
  // Names of the threads that have called Remove.
  std::set<std::string> removers() {
    MutexLock lock(mutex_);
    return removers_;
  }

 private:
  mutable Mutex mutex_;
  std::atomic<size_t> limit_ = 10;
  std::set<std::string> removers_ MRD_GUARDED_BY(mutex_);
  std::set<std::string> names_ MRD_GUARDED_BY(mutex_);
};

class AdoptionTest : public BrokerTest {
 protected:
  explicit AdoptionTest(const std::string& verbs = "devices=fake0;fake0.odp=1")
      : BrokerTest(verbs), slots_(*Slots::Create()) {
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

  // That all answers in the ledger come to.
  int LeasesInCalls() {
    int count = 0;
    ledger_->slots().ForEach(Kind::kCall, [&count](Slots::Id, std::string_view bytes) {
      pb::Call call;
      EXPECT_TRUE(call.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())));
      count += call.lease_ids_size();
    });
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

}  // namespace mrd::broker

#endif  // MRD_TESTS_BROKER_ADOPTION_FIXTURE_H_
