// The daemon killed between any two steps of what it does: what the next one takes over equals what
// the kernel has. Nothing dies here: at each step the ledger and the faked kernel are copied, and
// each copy is what a next one begins with. (tests/vm/kills.sh has the real ones.)
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "daemon/broker/add_keys.h"
#include "daemon/broker/adoption.h"
#include "tests/broker/broker_fixture.h"

namespace mrd::broker {
namespace {

using ledger::Slots;
using testing::AnyOf;
using Context = fake::FakeUverbs::Context;

constexpr char kDomain[] = "domain";

// What a process that is killed leaves.
struct Moment {
  std::string ledger;                       // Empty: there was none.
  std::map<std::string, Context> contexts;  // In the store, by their names there.
};

class Store final : public ledger::Store {
 public:
  explicit Store(std::function<void()> changed) : changed_(std::move(changed)) {}
  absl::Status Add(const std::string& name, int fd) override {
    {
      MutexLock lock(mutex_);
      fds_[name] = fd;
    }
    changed_();
    return absl::OkStatus();
  }
  void Remove(const std::string& name) override {
    {
      MutexLock lock(mutex_);
      if (fds_.erase(name) == 0) return;
    }
    changed_();
  }
  size_t limit() const override { return 100; }
  size_t used() const override { return fds().size(); }
  std::map<std::string, int> fds() const {
    MutexLock lock(mutex_);
    return fds_;
  }

 private:
  const std::function<void()> changed_;
  mutable Mutex mutex_;
  std::map<std::string, int> fds_ MRD_GUARDED_BY(mutex_);
};

using KeyFacts = std::tuple<uint32_t, uint32_t, uint64_t, uint64_t>;

// A daemon that begins with what another one left. One at a time records.
class Life {
 public:
  // `record`: what there is at each step of its taking over.
  explicit Life(const Moment& moment = {}, bool record = false)
      : store_([this] { Step(); }), verbs_("devices=fake0,fake1") {
    auto& uverbs = verbs_.uverbs();
    verbs_.KeepForNextRun();
    auto slots = moment.ledger.empty() ? Slots::Create() : Slots::Open(Copy(moment.ledger));
    EXPECT_TRUE(slots.ok()) << slots.status();
    fabric_ = *fabric::MakeVerbsFabric(verbs_, fabric::NoDevice::kIsAnError,
                                       (*slots)->counter(Slots::kGeneration) + 1);
    broker_ = std::make_unique<Broker>(*fabric_, Limits{}, 4);
    ledger_ = std::make_unique<ledger::Ledger>(*std::move(slots), store_);
    broker_->SetLedger(*ledger_);
    StoredFds fds;
    for (const auto& [name, context] : moment.contexts) {
      UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
      uverbs.Put(null.get(), context);
      store_.Add(name, null.get()).IgnoreError();
      fds.emplace(name, std::move(null));
    }
    uverbs.OnChange([this] { Step(); });
    if (record) Record();
    Adoption adoption(*broker_, *ledger_, std::move(fds), [](const Identity&) { return true; });
    EXPECT_TRUE(adoption.Run().ok());
    if (record) taken_over_ = Stop();
  }

  ~Life() {
    Stop();
    for (const SessionRef& session : broker_->All()) {
      broker_->End(session);
      while (broker_->SessionById(session->id)) std::this_thread::yield();
    }
    EXPECT_EQ(broker_->books().Total(), Amounts{});
    for (const auto& [name, context] : Contexts()) {
      EXPECT_TRUE(context.mrs.empty() && context.pds.empty()) << name;
    }
    std::promise<void> drained;
    broker_->Drain([&drained] { drained.set_value(); });
    drained.get_future().wait();
    broker_.reset();
    fabric_.reset();
    EXPECT_EQ(verbs_.Leaks(), "");
    EXPECT_EQ(verbs_.uverbs().busy(), 0);
  }

  // From here on each step is a moment; the first is now.
  void Record() {
    recording_ = this;
    Slots::SetHook([] { recording_->Step(); });
    Step();
  }
  std::vector<Moment> Stop() {
    Step();  // All is answered.
    Slots::SetHook(nullptr);
    recording_ = nullptr;
    const std::lock_guard lock(mutex_);
    return std::exchange(moments_, {});
  }

  // The moments of its constructor.
  const std::vector<Moment>& TakenOver() const { return taken_over_; }

  Moment Now() const {
    Moment moment;
    const Slots& slots = ledger_->slots();
    moment.ledger.resize(slots.bytes());
    EXPECT_EQ(pread(slots.fd(), moment.ledger.data(), moment.ledger.size(), 0),
              static_cast<ssize_t>(moment.ledger.size()));
    moment.contexts = Contexts();
    return moment;
  }

  // Books and kernel, one by one. How many leases there are.
  size_t Check() {
    std::vector<KeyFacts> books, kernel;
    const auto leases = broker_->Leases(nullptr, 0, 1000).leases;
    for (const auto& [session, view] : leases) {
      for (const KeyView& key : view.keys) {
        books.emplace_back(key.lkey, key.rkey, view.length, view.addr);
      }
    }
    for (const auto& [name, context] : Contexts()) {
      for (const auto& [handle, facts] : context.mrs) {
        kernel.emplace_back(facts.lkey, facts.rkey, facts.length, facts.iova);
      }
    }
    std::sort(books.begin(), books.end());
    std::sort(kernel.begin(), kernel.end());
    EXPECT_EQ(books, kernel);
    EXPECT_EQ(broker_->books().Total().regions, kernel.size());
    return leases.size();
  }

  Broker& broker() { return *broker_; }
  SessionRef session() { return broker_->All().front(); }

  void Attach() {
    auto session = broker_->Attach({.pid = 1, .uid = kUid, .comm = "", .death = ""}, "test",
                                   std::make_shared<FakeLink>());
    ASSERT_TRUE(session.ok()) << session.status();
    Pass();
  }
  void Pass() { EXPECT_TRUE(broker_->AddBuffer(*session(), 1, memory::MakeMemfd(1 << 20))); }
  void Resume() {
    auto resumed =
        broker_->Resume(session()->identity, session()->token, std::make_shared<FakeLink>());
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    Pass();
  }
  void Register(uint64_t count, std::vector<std::string> devices,
                std::chrono::seconds ttl = std::chrono::seconds(0),
                const std::string& domain = "") {
    RegisterSpec spec;
    for (uint64_t i = 0; i < count; ++i)
      spec.ranges.push_back({1, i << 12, 4096, kAddress + (i << 12)});
    spec.devices = std::move(devices);
    spec.access = fabric::Bit(v1::LOCAL_WRITE);
    spec.ttl = ttl;
    spec.domain = domain;
    spec.request_id = "request " + std::to_string(++requests_);
    std::promise<RegisterResult> done;
    broker_->Register(session(), std::move(spec),
                      [&done](RegisterResult result) { done.set_value(std::move(result)); });
    const RegisterResult result = done.get_future().get();
    ASSERT_TRUE(result.ok()) << result.status();
  }
  std::vector<uint64_t> LeaseIds() {
    std::vector<uint64_t> ids;
    for (const auto& [session, view] : broker_->Leases(nullptr, 0, 1000).leases) {
      ids.push_back(view.id);
    }
    return ids;
  }
  void Deregister() {
    std::promise<absl::Status> done;
    broker_->Deregister(session(), LeaseIds(),
                        [&done](absl::Status status) { done.set_value(std::move(status)); });
    EXPECT_TRUE(done.get_future().get().ok());
  }
  void AddKeys() {
    std::vector<LeaseBuffer> leases;
    for (const uint64_t id : LeaseIds()) leases.push_back({id, 1});
    std::promise<RegisterResult> done;
    broker::AddKeys::Start(*broker_, session(), std::move(leases),
                           [&done](RegisterResult result) { done.set_value(std::move(result)); });
    EXPECT_TRUE(done.get_future().get().ok());
  }

 private:
  static UniqueFd Copy(const std::string& ledger) {
    UniqueFd fd(memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(pwrite(fd.get(), ledger.data(), ledger.size(), 0),
              static_cast<ssize_t>(ledger.size()));
    fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK);
    return fd;
  }

  // Those that are in the store: the others ended with the process.
  std::map<std::string, Context> Contexts() const {
    std::map<std::string, Context> contexts;
    for (const auto& [name, fd] : store_.fds()) contexts[name] = verbs_.uverbs().Get(fd);
    return contexts;
  }

  void Step() {
    if (recording_ != this) return;
    // Who comes to a step waits here: what is copied is what one kill leaves.
    const std::lock_guard lock(mutex_);
    moments_.push_back(Now());
  }

  static inline Life* recording_ = nullptr;

  Store store_;
  mutable fake::FakeVerbs verbs_;
  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<ledger::Ledger> ledger_;
  std::unique_ptr<Broker> broker_;
  std::mutex mutex_;
  std::vector<Moment> moments_;
  std::vector<Moment> taken_over_;
  int requests_ = 0;
};

// How many leases the next daemon has, whenever this one is killed. At the last moment all is
// answered.
std::vector<size_t> LeasesAfter(const std::vector<Moment>& moments) {
  std::vector<size_t> leases;
  for (const Moment& moment : moments) {
    Life next(moment);
    leases.push_back(next.Check());
  }
  return leases;
}

// The one and then the other, and a good number of moments.
void ExpectFromTo(const std::vector<size_t>& leases, size_t from, size_t to) {
  EXPECT_GE(leases.size(), 5u);
  EXPECT_EQ(leases.front(), from);
  EXPECT_EQ(leases.back(), to);
  EXPECT_THAT(leases, testing::Each(AnyOf(from, to)));
}

TEST(KilledTest, ARegionIsRegisteredOrNot) {
  Life life;
  life.Attach();
  life.Record();
  life.Register(1, {"fake0"});
  ExpectFromTo(LeasesAfter(life.Stop()), 0, 1);
  life.Record();
  life.Register(1, {"fake0"});
  ExpectFromTo(LeasesAfter(life.Stop()), 1, 2);
}

TEST(KilledTest, ACallHoldsWholeOrNotAtAll) {
  Life life;
  life.Attach();
  life.Record();
  life.Register(3, {"fake0", "fake1"});
  ExpectFromTo(LeasesAfter(life.Stop()), 0, 3);
}

TEST(KilledTest, ALeaseHasItsTimeFromTheMomentItCounts) {
  Life life;
  life.Attach();
  life.Record();
  life.Register(2, {"fake0"}, std::chrono::seconds(60));
  size_t most = 0;
  for (const Moment& moment : life.Stop()) {
    Life next(moment);
    const size_t before = next.Check();
    next.broker().EndLapsed(std::chrono::steady_clock::now());
    EXPECT_EQ(next.LeaseIds().size(), before);
    most = std::max(most, before);
  }
  EXPECT_EQ(most, 2u);
}

TEST(KilledTest, ADomainIsThereForItsRegions) {
  Life life;
  life.Attach();
  life.Record();
  ASSERT_TRUE(life.broker().OpenDomain(*life.session(), {.name = kDomain, .create = true}).ok());
  life.Register(1, {"fake0"}, std::chrono::seconds(0), kDomain);
  ExpectFromTo(LeasesAfter(life.Stop()), 0, 1);
  life.Record();
  std::promise<void> closed;
  life.broker().CloseDomain(life.session(), kDomain,
                            [&](const absl::Status&) { closed.set_value(); });
  closed.get_future().wait();
  for (const size_t leases : LeasesAfter(life.Stop())) EXPECT_EQ(leases, 1u);
}

TEST(KilledTest, LeasesEndOneByOne) {
  Life life;
  life.Attach();
  life.Register(1, {"fake0"});
  life.Register(2, {"fake0", "fake1"});
  life.Record();
  life.Deregister();
  const auto leases = LeasesAfter(life.Stop());
  EXPECT_EQ(leases.front(), 3u);
  EXPECT_EQ(leases.back(), 0u);
  EXPECT_TRUE(std::is_sorted(leases.rbegin(), leases.rend()));
}

TEST(KilledTest, ASessionEndsWithAllThatItHas) {
  Life life;
  life.Attach();
  life.Register(3, {"fake0", "fake1"});
  const SessionRef session = life.session();
  life.Record();
  life.broker().End(session);
  while (life.broker().SessionById(session->id)) std::this_thread::yield();
  ExpectFromTo(LeasesAfter(life.Stop()), 3, 0);
}

TEST(KilledTest, LeasesKeepTheirKeysWhileOthersAreAdded) {
  Life first;
  first.Attach();
  first.Register(1, {"fake0", "fake1"}, std::chrono::seconds(60));
  first.Register(2, {"fake0"});
  Life second(first.Now());
  EXPECT_EQ(second.Check(), 3u);
  second.Resume();
  second.Record();
  second.AddKeys();
  for (const size_t leases : LeasesAfter(second.Stop())) EXPECT_EQ(leases, 3u);
  // Those with keys of two generations end as others do.
  second.Record();
  second.Deregister();
  const auto leases = LeasesAfter(second.Stop());
  EXPECT_EQ(leases.front(), 3u);
  EXPECT_EQ(leases.back(), 0u);
}

// Whenever a call was cut short, and whenever the daemon that clears that up is killed in turn.
TEST(KilledTest, TakingOverCanBeKilledTooAndLosesNothing) {
  Life first;
  first.Attach();
  first.Register(2, {"fake0"}, std::chrono::seconds(60));
  first.Record();
  first.Register(2, {"fake0", "fake1"});
  const auto moments = first.Stop();
  size_t tried = 0;
  for (const Moment& moment : moments) {
    std::vector<Moment> during;
    size_t leases;
    {
      Life second(moment, /*record=*/true);
      during = second.TakenOver();
      leases = second.Check();
    }
    for (const size_t each : LeasesAfter(during)) EXPECT_EQ(each, leases);
    tried += during.size();
  }
  EXPECT_GT(tried, 100u);
}

}  // namespace
}  // namespace mrd::broker
