#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "tests/fabric/peers.h"
#include "tests/fabric/stranger.h"
#include "tests/fabric/verbs_fixture.h"

namespace mrd::fabric {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kIp[] = "10.99.0.1";

class VerbsEndpoints : public VerbsTest {
 protected:
  std::unique_ptr<Listener> MakeListener(int backlog = 4, const std::string& address = kIp,
                                         uint32_t port = 0) {
    auto listener = fabric_->Listen(address, port, backlog);
    EXPECT_TRUE(listener.ok()) << listener.status();
    return listener.ok() ? *std::move(listener) : nullptr;
  }
};

TEST_F(VerbsEndpoints, AListenerKnowsItsAddressPortAndDevice) {
  Start("devices=fake0");
  auto listener = MakeListener();
  EXPECT_EQ(listener->info().local_address, kIp);
  EXPECT_NE(listener->info().local_port, 0u);
  EXPECT_EQ(listener->info().device, "fake0");
  EXPECT_EQ(MakeListener(4, "0.0.0.0")->info().device, "");
}

TEST_F(VerbsEndpoints, ListeningWhereItCannotBeSaysWhy) {
  Start("devices=fake0");
  EXPECT_EQ(Detail(fabric_->Listen("", 0, 4).status()).reason(), v1::ADDRESS_INVALID);
  EXPECT_EQ(Detail(fabric_->Listen("host.example", 0, 4).status()).reason(), v1::ADDRESS_INVALID);
  EXPECT_EQ(Detail(fabric_->Listen(kIp, 65536, 4).status()).reason(), v1::ADDRESS_INVALID);
  const auto other = Detail(fabric_->Listen("192.0.2.1", 0, 4).status());
  EXPECT_EQ(other.reason(), v1::ADDRESS_INVALID);
  EXPECT_EQ(other.errno_name(), "EADDRNOTAVAIL");
  auto listener = MakeListener(4, kIp, 7000);
  const auto used = Detail(fabric_->Listen(kIp, 7000, 4).status());
  EXPECT_EQ(used.reason(), v1::CONNECTION_FAILED);
  EXPECT_EQ(used.errno_name(), "EADDRINUSE");
  for (const char* call : {"channel", "id", "bind", "listen"}) {
    fake_->Fail("fake0", call, "EMFILE@1");
    EXPECT_EQ(Detail(fabric_->Listen(kIp, 0, 4).status()).errno_name(), "EMFILE") << call;
  }
}

TEST_F(VerbsEndpoints, AConnectionStandsWithPrivateDataBothWays) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  Side a(domain), c(domain);
  listener->Accept(a.Spec("from a"), a.Done());
  fabric_->Connect(kIp, listener->info().local_port, "", c.Spec("from c"), c.Done());
  ASSERT_TRUE(a.Wait().ok()) << a.Wait();
  ASSERT_TRUE(c.Wait().ok()) << c.Wait();
  EXPECT_THAT(a.established().private_data, StartsWith("from c"));
  EXPECT_THAT(c.established().private_data, StartsWith("from a"));
  EXPECT_EQ(a.info().device, "fake0");
  EXPECT_EQ(a.asked_device(), "fake0");
  EXPECT_EQ(c.asked_device(), "fake0");
  EXPECT_EQ(a.info().local_port, c.info().peer_port);
  EXPECT_EQ(a.info().peer_address, kIp);
  EXPECT_NE(a.info().qp_num, 0u);
  EXPECT_EQ(fake_->live().qps, 2);

  listener.reset();  // Connections stand.
  c.Disconnect();
  EXPECT_TRUE(a.WaitLeft());
  EXPECT_FALSE(a.left_error());
  a.Disconnect();
  EXPECT_EQ(a.left_calls(), 1);
  EXPECT_EQ(c.left_calls(), 0);
}

// Whoever keeps a record hears of the end while the kernel has it still, for who comes next.
TEST_F(VerbsEndpoints, AnEventIsToldOfBeforeItIsTaken) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  Side a(domain), c(domain);
  struct Seen {
    std::atomic<int> fd = -1;
    std::atomic<int> waits = 0, others = 0;
    std::atomic<bool> is_there = false;
  };
  const auto seen = std::make_shared<Seen>();
  ConnectionSpec spec = a.Spec();
  spec.event = [seen](bool waits) {
    pollfd events = {seen->fd, POLLIN, 0};
    if (waits) seen->is_there = poll(&events, 1, 0) == 1;
    ++(waits ? seen->waits : seen->others);
  };
  listener->Accept(std::move(spec), a.Done());
  fabric_->Connect(kIp, listener->info().local_port, "", c.Spec(), c.Done());
  ASSERT_TRUE(a.Wait().ok() && c.Wait().ok());
  seen->fd = a.established().connection->handles().fd;
  EXPECT_EQ(seen->waits, 0);
  c.Disconnect();
  EXPECT_TRUE(a.WaitLeft());
  EXPECT_EQ(seen->waits, 1);
  EXPECT_TRUE(seen->is_there);
  EXPECT_EQ(seen->others, 0) << "it was the end";
}

TEST_F(VerbsEndpoints, RequestsWaitForAcceptsInOrder) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  Side a(domain), b(domain), c(domain), d(domain);
  const uint32_t port = listener->info().local_port;
  fabric_->Connect(kIp, port, kIp, c.Spec("first"), c.Done());
  EXPECT_TRUE(c.Idle(milliseconds(30)));
  fabric_->Connect(kIp, port, kIp, d.Spec("second"), d.Done());
  EXPECT_TRUE(d.Idle(milliseconds(30)));
  listener->Accept(a.Spec(), a.Done());
  listener->Accept(b.Spec(), b.Done());
  ASSERT_TRUE(a.Wait().ok() && b.Wait().ok() && c.Wait().ok() && d.Wait().ok());
  EXPECT_THAT(a.established().private_data, StartsWith("first"));
  EXPECT_THAT(b.established().private_data, StartsWith("second"));
}

TEST_F(VerbsEndpoints, AQueuePairInErrorIsAConnectionThatFailed) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  Side a(domain), c(domain);
  listener->Accept(a.Spec(), a.Done());
  fabric_->Connect(kIp, listener->info().local_port, "", c.Spec(), c.Done());
  ASSERT_TRUE(a.Wait().ok() && c.Wait().ok());
  fake_->FailQueuePairs();
  fake_->FailQueuePairs();
  EXPECT_TRUE(a.WaitLeft());
  EXPECT_TRUE(c.WaitLeft());
  EXPECT_TRUE(a.left_error());
  a.Disconnect();
  c.Disconnect();
  EXPECT_EQ(a.left_calls(), 1);
  EXPECT_EQ(c.left_calls(), 1);
}

TEST_F(VerbsEndpoints, ADeviceThatGoesAwayEndsItsConnections) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  Side a(domain), c(domain), waiting(domain);
  listener->Accept(a.Spec(), a.Done());
  fabric_->Connect(kIp, listener->info().local_port, "", c.Spec(), c.Done());
  ASSERT_TRUE(a.Wait().ok() && c.Wait().ok());
  listener->Accept(waiting.Spec(), waiting.Done());
  fake_->cm().ForEach(
      [&](rdma_cm_id* id) { fake_->cm().Inject(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0); });
  EXPECT_TRUE(a.WaitLeft());
  EXPECT_TRUE(a.left_error());
  EXPECT_EQ(ReasonOf(waiting.Wait()), v1::DEVICE_REMOVED);
}

TEST_F(VerbsEndpoints, ConnectingFailsWithTheCause) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  {
    Side c(domain);
    fabric_->Connect(kIp, 7000, "", c.Spec(), c.Done());
    const auto detail = Detail(c.Wait());
    EXPECT_EQ(detail.reason(), v1::CONNECTION_FAILED);
    EXPECT_EQ(detail.errno_name(), "ECONNREFUSED");
  }
  {
    Side c(domain);
    fabric_->Connect("192.0.2.1", 7000, "", c.Spec(), c.Done());
    EXPECT_EQ(Detail(c.Wait()).errno_name(), "EHOSTUNREACH");
  }
  {
    Side c(domain);
    fabric_->Connect(kIp, 7000, "192.0.2.1", c.Spec(), c.Done());
    EXPECT_EQ(Detail(c.Wait()).errno_name(), "EADDRNOTAVAIL");
  }
  for (const char* address : {"", "nonsense", "10.99.0.1 "}) {
    Side c(domain);
    fabric_->Connect(address, 7000, "", c.Spec(), c.Done());
    EXPECT_EQ(Detail(c.Wait()).reason(), v1::ADDRESS_INVALID);
  }
  {
    Side c(domain);
    fabric_->Connect(kIp, 7000, "", c.Spec(std::string(57, 'x')), c.Done());
    EXPECT_EQ(Detail(c.Wait()).reason(), v1::REQUEST_INVALID);
  }
}

TEST_F(VerbsEndpoints, EveryStepOfConnectingMayFailAndLeavesNothing) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  for (const char* call :
       {"channel", "id", "resolve_addr", "resolve_route", "cq", "qp", "connect"}) {
    Side c(domain);
    fake_->Fail("fake0", call, "ENOMEM@1");
    fabric_->Connect(kIp, listener->info().local_port, "", c.Spec(), c.Done());
    EXPECT_EQ(Detail(c.Wait()).errno_name(), "ENOMEM") << call;
  }
}

TEST_F(VerbsEndpoints, WhatThisHostLacksIsNotBlamedOnThePeer) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  struct Case {
    const char* call;
    const char* error;
    v1::Reason reason;
    const char* advice;
  };
  for (const Case& each : {Case{"channel", "EMFILE@1", v1::DEVICE_ERROR, "LimitNOFILE"},
                           Case{"id", "ENFILE@1", v1::DEVICE_ERROR, "LimitNOFILE"},
                           Case{"id", "EACCES@1", v1::DEVICE_ERROR, "/dev/infiniband"},
                           Case{"id", "ENODEV@1", v1::DEVICE_ERROR, "rdma_ucm"},
                           Case{"id", "ENOMEM@1", v1::DEVICE_LIMIT, "The kernel has no"},
                           Case{"connect", "ENOMEM@1", v1::DEVICE_LIMIT, "The kernel has no"}}) {
    Side c(domain);
    fake_->Fail("fake0", each.call, each.error);
    fabric_->Connect(kIp, listener->info().local_port, "", c.Spec(), c.Done());
    const auto detail = Detail(c.Wait());
    EXPECT_EQ(detail.reason(), each.reason) << each.call << " " << each.error;
    EXPECT_THAT(detail.advice(), HasSubstr(each.advice)) << each.call << " " << each.error;
  }
}

TEST_F(VerbsEndpoints, EveryStepOfAcceptingMayFailAndLeavesNothing) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  for (const char* call : {"cq", "qp", "accept"}) {
    Side a(domain);
    listener->Accept(a.Spec(), a.Done());
    fake_->Fail("fake0", call, "ENOMEM@1");
    Stranger stranger(*fake_, kIp, listener->info().local_port);
    EXPECT_EQ(Detail(a.Wait()).errno_name(), "ENOMEM") << call;
    EXPECT_EQ(stranger.WaitOutcome(), RDMA_CM_EVENT_REJECTED);
  }
  // A request that cannot have a channel of its own is rejected; the Accept waits on.
  for (const char* call : {"channel", "migrate"}) {
    Side a(domain);
    listener->Accept(a.Spec(), a.Done());
    {
      Stranger unlucky(*fake_, kIp, listener->info().local_port,
                       [&] { fake_->Fail("fake0", call, "EMFILE@1"); });
      EXPECT_EQ(unlucky.WaitOutcome(), RDMA_CM_EVENT_REJECTED) << call;
    }
    Stranger stranger(*fake_, kIp, listener->info().local_port);
    EXPECT_TRUE(a.Wait().ok());
    a.Disconnect();
  }
}

TEST_F(VerbsEndpoints, QueuePairsBeyondTheDevicesLimitSayLimitAndUsed) {
  Start("devices=fake0;fake0.max_qp=0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  Side a(domain);
  listener->Accept(a.Spec(), a.Done());
  Stranger stranger(*fake_, kIp, listener->info().local_port);
  const auto detail = Detail(a.Wait());
  EXPECT_EQ(detail.reason(), v1::DEVICE_LIMIT);
  EXPECT_EQ(detail.limit_name(), "max_qp of device fake0");
}

TEST_F(VerbsEndpoints, WaitsEndAtTheirDeadlines) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  Side a(domain), c(domain);
  listener->Accept(a.Spec("", milliseconds(20)), a.Done());
  EXPECT_EQ(ReasonOf(a.Wait()), v1::WAIT_ENDED);
  fabric_->Connect(kIp, listener->info().local_port, "", c.Spec("", milliseconds(20)), c.Done());
  EXPECT_EQ(ReasonOf(c.Wait()), v1::WAIT_ENDED);
  // The request of the one that gave up goes with it: the listener's id alone is left.
  for (int i = 0; i < 20000 && fake_->live().ids != 1; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  Side b(domain), d(domain);
  listener->Accept(b.Spec(), b.Done());
  fabric_->Connect(kIp, listener->info().local_port, "", d.Spec(), d.Done());
  EXPECT_TRUE(b.Wait().ok()) << b.Wait();
  EXPECT_TRUE(d.Wait().ok()) << d.Wait();
}

TEST_F(VerbsEndpoints, AWaitEndsInTimeWhileTheKernelBlocks) {
  Start("devices=fake0;fake0.connect_delay_ms=500");
  const auto domain = MakeDomain();
  Side c(domain);
  const auto begin = std::chrono::steady_clock::now();
  fabric_->Connect(kIp, 7000, "", c.Spec("", milliseconds(50)), c.Done());
  EXPECT_EQ(ReasonOf(c.Wait()), v1::WAIT_ENDED);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(400));
}

TEST_F(VerbsEndpoints, AttemptsThatTheKernelHoldsUpAreBounded) {
  Start("devices=fake0;fake0.connect_delay_ms=300");
  const auto domain = MakeDomain();
  Side busy(domain);
  std::vector<std::unique_ptr<Side>> sides;
  for (int i = 0; i < 256; ++i) {
    sides.push_back(std::make_unique<Side>(domain));
    fabric_->Connect(kIp, 7000, "", sides.back()->Spec("", milliseconds(1)), sides.back()->Done());
  }
  fabric_->Connect(kIp, 7000, "", busy.Spec(), busy.Done());
  const auto detail = Detail(busy.Wait());
  EXPECT_EQ(detail.reason(), v1::BUSY);
  EXPECT_EQ(detail.limit(), 256u);
  for (const auto& side : sides) EXPECT_EQ(ReasonOf(side->Wait()), v1::WAIT_ENDED);
}

TEST_F(VerbsEndpoints, APeerWhoseAnswerNeverComesHoldsAnAcceptUpToItsDeadline) {
  Start("devices=fake0");
  fake_->cm().HoldEstablished(true);
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  Side a(domain), b(domain);
  listener->Accept(a.Spec("", milliseconds(50)), a.Done());
  Stranger stranger(*fake_, kIp, listener->info().local_port);
  EXPECT_EQ(ReasonOf(a.Wait()), v1::WAIT_ENDED);
  EXPECT_EQ(fake_->live().qps, 0);
  listener->Accept(b.Spec(), b.Done());
  {
    Stranger another(*fake_, kIp, listener->info().local_port);
    EXPECT_EQ(another.WaitOutcome(), RDMA_CM_EVENT_ESTABLISHED);
  }  // And vanishes.
  EXPECT_EQ(ReasonOf(b.Wait()), v1::CONNECTION_FAILED);
}

TEST_F(VerbsEndpoints, AnIwarpPeerThatNeverFinishesItsHandshakeHoldsUpNobody) {
  Start("devices=fake0;fake0.transport=iwarp");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  auto other = MakeListener();
  fake_->cm().HoldEstablished(true);
  const auto booked = std::make_shared<int>();
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int i = 0; i < 12; ++i) {  // More than there are threads that end ids.
    Side a(domain);
    auto spec = a.Spec("", milliseconds(20));
    spec.held = booked;
    listener->Accept(std::move(spec), a.Done());
    silent.push_back(std::make_unique<Stranger>(*fake_, kIp, listener->info().local_port));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(ReasonOf(a.Wait()), v1::WAIT_ENDED);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, fake::FakeCm::kKernelWait / 2);
  }
  EXPECT_EQ(booked.use_count(), 13) << "what the kernel holds stays booked";
  const auto begin = std::chrono::steady_clock::now();
  listener.reset();
  // A connection that its owner drops at once ends where others of its kind do.
  for (int i = 0; i < 2; ++i) {
    Side c(domain);
    fabric_->Connect("192.0.2.1", 7000, "", c.Spec(), c.Done());
    EXPECT_EQ(Detail(c.Wait()).errno_name(), "EHOSTUNREACH");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, fake::FakeCm::kKernelWait / 2);
  // Six go, the other six finish their handshakes after all: nothing is left of either.
  silent.resize(6);
  fake_->cm().HoldEstablished(false);
  for (int i = 0; i < 20000 && booked.use_count() > 1; ++i) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(booked.use_count(), 1);
  EXPECT_EQ(fake_->live().qps, 0);
  for (auto& stranger : silent) {
    EXPECT_EQ(stranger->WaitOutcome(), RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(stranger->WaitOutcome(), RDMA_CM_EVENT_DISCONNECTED);
  }
  Side a(domain), c(domain);
  other->Accept(a.Spec(), a.Done());
  fabric_->Connect(kIp, other->info().local_port, "", c.Spec(), c.Done());
  EXPECT_TRUE(a.Wait().ok()) << a.Wait();
  EXPECT_TRUE(c.Wait().ok()) << c.Wait();
}

TEST_F(VerbsEndpoints, APeerThatConnectsAndVanishesLeavesNothing) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  for (int i = 0; i < 50; ++i) {
    Stranger stranger(*fake_, kIp, listener->info().local_port);
    if (i % 2 == 0) stranger.Sent();
  }
  Side a(domain), c(domain);
  listener->Accept(a.Spec(), a.Done());
  fabric_->Connect(kIp, listener->info().local_port, "", c.Spec(), c.Done());
  // An Accept may meet one that vanished just now.
  if (!a.Wait().ok()) {
    EXPECT_EQ(ReasonOf(a.Wait()), v1::CONNECTION_FAILED);
  }
}

TEST_F(VerbsEndpoints, AFloodOfRequestsIsRejectedBeyondTheBacklog) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener(3);
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 50; ++i) {
    strangers.push_back(std::make_unique<Stranger>(*fake_, kIp, listener->info().local_port));
    strangers.back()->Sent();
  }
  for (int i = 3; i < 50; ++i) {
    EXPECT_EQ(strangers[i]->WaitOutcome(), RDMA_CM_EVENT_REJECTED) << i;
  }
  // Three wait: the first is taken, and the listener lives.
  Side a(domain);
  listener->Accept(a.Spec(), a.Done());
  EXPECT_TRUE(a.Wait().ok());
  EXPECT_EQ(strangers[0]->WaitOutcome(), RDMA_CM_EVENT_ESTABLISHED);
  listener.reset();
  EXPECT_EQ(strangers[1]->WaitOutcome(), RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(strangers[2]->WaitOutcome(), RDMA_CM_EVENT_REJECTED);
}

TEST_F(VerbsEndpoints, TheListenersEndAnswersAllThatWait) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  Side a(domain), b(domain);
  listener->Accept(a.Spec(), a.Done());
  listener->Accept(b.Spec(), b.Done());
  listener.reset();
  EXPECT_EQ(ReasonOf(a.Wait()), v1::ENDPOINT_UNKNOWN);
  EXPECT_EQ(ReasonOf(b.Wait()), v1::ENDPOINT_UNKNOWN);
}

TEST_F(VerbsEndpoints, AnUnwantedAttemptAnswersNobody) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  Side gone(domain), a(domain), c(domain);
  gone.set_wanted(false);
  listener->Accept(gone.Spec(), gone.Done());
  listener->Accept(a.Spec(), a.Done());
  fabric_->Connect(kIp, listener->info().local_port, "", c.Spec(), c.Done());
  EXPECT_EQ(ReasonOf(gone.Wait()), v1::WAIT_ENDED);
  EXPECT_TRUE(a.Wait().ok());
  EXPECT_TRUE(c.Wait().ok());
  Side unwanted(domain);
  unwanted.set_wanted(false);
  fabric_->Connect(kIp, listener->info().local_port, "", unwanted.Spec(), unwanted.Done());
  EXPECT_EQ(ReasonOf(unwanted.Wait()), v1::WAIT_ENDED);
}

TEST_F(VerbsEndpoints, ADomainThatCannotBeMadeRejectsThePeer) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  Side a(domain), c(domain);
  a.set_domain_error(MakeError(v1::QUOTA_ENDPOINTS, "too many"));
  listener->Accept(a.Spec(), a.Done());
  fabric_->Connect(kIp, listener->info().local_port, "", c.Spec(), c.Done());
  EXPECT_EQ(ReasonOf(a.Wait()), v1::QUOTA_ENDPOINTS);
  EXPECT_EQ(Detail(c.Wait()).errno_name(), "ECONNREFUSED");
}

TEST_F(VerbsEndpoints, ADomainOfAnotherDeviceIsRefused) {
  Start("devices=fake0,fake1");
  const auto wrong = MakeDomain("fake1");
  auto listener = MakeListener();
  Side a(wrong);
  listener->Accept(a.Spec(), a.Done());
  Stranger stranger(*fake_, kIp, listener->info().local_port);
  EXPECT_EQ(Detail(a.Wait()).errno_name(), "EINVAL");
}

TEST_F(VerbsEndpoints, AConnectionDroppedInItsCallbackIsEnded) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener();
  Side a(domain), c(domain);
  listener->Accept(a.Spec(), [](absl::StatusOr<Established> result) { EXPECT_TRUE(result.ok()); });
  fabric_->Connect(kIp, listener->info().local_port, "", c.Spec(), c.Done());
  EXPECT_TRUE(c.Wait().ok());
  EXPECT_TRUE(c.WaitLeft());
}

TEST_F(VerbsEndpoints, TheFabricsEndEndsAttempts) {
  Start("devices=fake0");
  auto domain = MakeDomain();
  auto listener = MakeListener();
  Side c(std::move(domain));
  fabric_->Connect(kIp, listener->info().local_port, "", c.Spec(), c.Done());
  EXPECT_TRUE(c.Idle(milliseconds(30)));
  listener.reset();
  EXPECT_FALSE(c.Wait().ok());
}

TEST_F(VerbsEndpoints, ManyConnectionsComeAndGoAtOnce) {
  Start("devices=fake0");
  const auto domain = MakeDomain();
  auto listener = MakeListener(128);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 50; ++j) {
        Side a(domain), c(domain);
        listener->Accept(a.Spec(), a.Done());
        fabric_->Connect(kIp, listener->info().local_port, "", c.Spec(), c.Done());
        EXPECT_TRUE(a.Wait().ok()) << a.Wait();
        EXPECT_TRUE(c.Wait().ok()) << c.Wait();
        if (j % 2 == 0) a.Disconnect();
        c.Disconnect();
        a.Disconnect();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace mrd::fabric
