// A broker on faked verbs, with a client that holds buffers. At the end of each test nothing may be
// left: no region, no domain, no booked byte.
#ifndef MRD_TESTS_BROKER_BROKER_FIXTURE_H_
#define MRD_TESTS_BROKER_BROKER_FIXTURE_H_

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "daemon/broker/broker.h"
#include "daemon/broker/endpoints.h"
#include "daemon/fabric/verbs/verbs_fabric.h"
#include "mrd/v1/status.h"
#include "tests/fake/fake_verbs.h"
#include "tests/memory/memfd.h"

namespace mrd::broker {

constexpr uint64_t kAddress = 0x650000000000;
constexpr uint32_t kUid = 1000;

class FakeLink : public Link {
 public:
  void Drain() override {
    if (on_drain) on_drain();
  }
  void Send(const Event& event) override {
    MutexLock lock(mutex);
    events.push_back(event);
  }
  void HangUp() override { hung_up = true; }

  std::function<void()> on_drain;
  Mutex mutex;
  std::vector<Event> events;
  std::atomic<bool> hung_up = false;
};

class BrokerTest : public testing::Test {
 protected:
  explicit BrokerTest(const std::string& verbs = "devices=fake0,fake1", Limits limits = {},
                      size_t threads = 4)
      : verbs_(verbs),
        fabric_(*fabric::MakeVerbsFabric(verbs_)),
        broker_(std::make_unique<Broker>(*fabric_, limits, threads)) {}

  ~BrokerTest() override {
    std::promise<void> drained;
    broker_->Drain([&] { drained.set_value(); });
    drained.get_future().wait();
    EXPECT_EQ(broker_->books().Total(), Amounts{});
    EXPECT_EQ(broker_->mappings().cache.count(), 0u);
    EXPECT_EQ(broker_->mappings().window.count(), 0u);
    broker_.reset();
    fabric_.reset();
    EXPECT_EQ(verbs_.Leaks(), "");
  }

  SessionRef Attach(uint32_t uid = kUid, std::shared_ptr<FakeLink> link = nullptr) {
    if (!link) link = std::make_shared<FakeLink>();
    auto session = broker_->Attach({.pid = 1, .uid = uid, .comm = "", .death = ""}, "test", link);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *session : nullptr;
  }

  void Pass(const SessionRef& session, uint64_t id, uint64_t size = 1 << 20) {
    EXPECT_TRUE(broker_->AddBuffer(*session, id, memory::MakeMemfd(size)));
  }

  absl::Status Release(const SessionRef& session, const std::vector<uint64_t>& ids) {
    std::promise<absl::Status> released;
    broker_->ReleaseBuffers(session, ids,
                            [&](const absl::Status& status) { released.set_value(status); });
    return released.get_future().get();
  }

  static RegisterSpec Spec(std::vector<RangeSpec> ranges, std::string device = "fake0") {
    RegisterSpec spec;
    spec.ranges = std::move(ranges);
    spec.devices = {std::move(device)};
    spec.access = fabric::Bit(v1::LOCAL_WRITE);
    return spec;
  }
  // Of buffer 1.
  static RangeSpec Range(uint64_t offset, uint64_t length, uint64_t buffer_id = 1) {
    return {buffer_id, offset, length, kAddress + offset};
  }

  std::future<RegisterResult> StartRegister(const SessionRef& session, RegisterSpec spec) {
    auto promise = std::make_shared<std::promise<RegisterResult>>();
    broker_->Register(session, std::move(spec),
                      [promise](RegisterResult result) { promise->set_value(std::move(result)); });
    return promise->get_future();
  }
  RegisterResult Register(const SessionRef& session, RegisterSpec spec) {
    return StartRegister(session, std::move(spec)).get();
  }
  absl::Status Deregister(const SessionRef& session, std::vector<uint64_t> ids) {
    std::promise<absl::Status> done;
    broker_->Deregister(session, std::move(ids),
                        [&](absl::Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }
  // Ends the session, and tells whether it stays for a while, as it must where a call of its is
  // being answered: the daemon may be gone as soon as its last session is.
  bool StaysWhenEnded(const SessionRef& session) {
    broker_->End(session);
    for (int i = 0; i < 100; ++i) {
      if (!broker_->SessionById(session->id)) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  // Until the session holds nothing any more.
  void EndAndWait(const SessionRef& session) {
    broker_->End(session);
    while (broker_->SessionById(session->id)) std::this_thread::yield();
  }

  fake::FakeVerbs verbs_;
  std::unique_ptr<fabric::Fabric> fabric_;
  std::unique_ptr<Broker> broker_;
};

}  // namespace mrd::broker

#endif  // MRD_TESTS_BROKER_BROKER_FIXTURE_H_
