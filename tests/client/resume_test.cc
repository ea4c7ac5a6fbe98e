// The daemon is restarted, with a store: the session goes on, and its user hardly notices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "mrd/v1/status.h"
#include "tests/client/fake_host.h"

namespace mrd::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class Resume : public ::testing::Test {
 protected:
  Client Attach(AttachOptions options = {}) {
    options.socket_dir = host_.dir();
    options.on_lost = [this](const absl::Status&) { ++lost_; };
    options.on_rekeyed = [this](const Rekeyed&) { ++rekeyed_; };
    auto client = Client::Attach(std::move(options));
    EXPECT_TRUE(client.ok()) << client.status();
    return std::move(*client);
  }
  bool Resumed(size_t times = 1) {
    return Soon([&] { return host_.hellos().size() == times + 1; });
  }
  ino_t InodeOf(const Buffer& buffer) {
    struct stat st = {};
    fstat(buffer.fd(), &st);
    return st.st_ino;
  }

  std::atomic<int> lost_ = 0;
  std::atomic<int> rekeyed_ = 0;
  std::function<absl::Status(int, const v1::RegisterRequest&, v1::RegisterResponse*)> register_ =
      [](int, const auto& request, auto* response) { return GrantFresh(1, request, response); };
  std::function<absl::Status(int n)> listen_ = [](int) { return absl::OkStatus(); };
  std::atomic<int> ttl_ms_ = 0;
  FakeHost host_{/*store=*/true, [this](FakeServices& services) {
                   services.on_register = register_;
                   services.on_listen = listen_;
                   services.on_renew = [this](int, v1::RenewLeasesResponse* response) {
                     if (ttl_ms_ > 0) {
                       response->mutable_shortest_ttl()->set_seconds(ttl_ms_ / 1000);
                     }
                     return absl::OkStatus();
                   };
                 }};
};

TEST_F(Resume, TheSessionGoesOnUnderItsTokenWithLeasesAndKeys) {
  std::promise<v1::AttachEvent> told;
  Client client =
      Attach({.name = "rider", .on_event = [&](const auto& event) { told.set_value(event); }});
  auto buffer = client.CreateBuffer(4096);
  auto region = client.RegMsgs(*buffer);
  ASSERT_TRUE(region.ok()) << region.status();
  const uint64_t lease = region->lease_id();
  const uint32_t rkey = region->rkey();
  host_.Restart();
  EXPECT_EQ(told.get_future().get().kind(), v1::AttachEvent::EVENTS_LOST);
  EXPECT_THAT(host_.hellos(), ElementsAre("", FakeHost::TokenOf(1)));
  EXPECT_EQ(client.session_id(), 1u);
  EXPECT_TRUE(client.SessionStatus().ok());
  EXPECT_EQ(region->lease_id(), lease);
  EXPECT_EQ(region->rkey(), rkey);
  EXPECT_TRUE(region->Deregister().ok());
  EXPECT_THAT(host_.services().tokens(), Each(FakeHost::TokenOf(1)));
  EXPECT_EQ(lost_, 0);
  EXPECT_EQ(rekeyed_, 0);
}

TEST_F(Resume, AClientThatIsOnlyToBeToldOfALossIsResumedAllTheSame) {
  Client client = Attach({.on_loss = OnLoss::kTell});
  host_.Restart();
  ASSERT_TRUE(Resumed());
  auto buffer = client.CreateBuffer(4096);
  EXPECT_TRUE(client.RegMsgs(*buffer).ok());
  EXPECT_EQ(lost_, 0);
}

TEST_F(Resume, ACallUnderWayIsRepeatedUnderItsRequestIdWithItsBufferPassedAgain) {
  std::promise<void> under_way;
  std::atomic<bool> first = true;
  v1::RegisterRequest before;
  register_ = [&](int, const auto& request, auto* response) {
    if (first.exchange(false)) {
      before = request;
      under_way.set_value();
      std::this_thread::sleep_for(milliseconds(300));  // The daemon is killed meanwhile.
    }
    return GrantFresh(1, request, response);
  };
  host_.Restart();
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  auto region = std::async(std::launch::async, [&] { return client.RegMsgs(*buffer); });
  under_way.get_future().wait();
  host_.Restart();
  const auto answer = region.get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  const auto again = host_.services().registers();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].SerializeAsString(), before.SerializeAsString());
  EXPECT_NE(again[0].request_id(), "");
  const auto once = std::pair(before.ranges(0).buffer_id(), InodeOf(*buffer));
  EXPECT_TRUE(Soon([&] { return host_.passed().size() == 2; }));
  EXPECT_THAT(host_.passed(), ElementsAre(once, once));
}

TEST_F(Resume, ACallMadeWhileTheDaemonIsAwayWaitsForIt) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  ASSERT_TRUE(client.RegMsgs(*buffer).ok());
  host_.Down();
  auto region = std::async(std::launch::async, [&] { return client.RegMsgs(*buffer); });
  EXPECT_EQ(region.wait_for(milliseconds(300)), std::future_status::timeout);
  const auto up = Clock::now();
  host_.Up();
  EXPECT_TRUE(region.get().ok());
  EXPECT_LT(Clock::now() - up, seconds(2));
}

TEST_F(Resume, ACallWaitsNoLongerThanItsDeadline) {
  Client client = Attach({.call_timeout = milliseconds(300)});
  auto buffer = client.CreateBuffer(4096);
  host_.Down();
  const auto began = Clock::now();
  const absl::Status status = client.RegMsgs(*buffer).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(ReasonOf(status), v1::REASON_UNSPECIFIED);
  EXPECT_GE(Clock::now() - began, milliseconds(250));
  EXPECT_LT(Clock::now() - began, seconds(5));
  EXPECT_TRUE(client.SessionStatus().ok());
  host_.Up();
  ASSERT_TRUE(Resumed());
  EXPECT_TRUE(Soon([&] { return client.RegMsgs(*buffer).ok(); }));
}

// Restarts of 100 ms, as a client sees them that registers without a pause.
TEST_F(Resume, TheGapThatCallersSeeIsShort) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  std::atomic<bool> done = false;
  std::atomic<int64_t> longest = 0;
  std::thread caller([&] {
    while (!done) {
      const auto began = Clock::now();
      auto region = client.RegMsgs(*buffer);
      EXPECT_TRUE(region.ok()) << region.status();
      const absl::Status ended = region.ok() ? region->Deregister() : absl::OkStatus();
      EXPECT_TRUE(ended.ok()) << ended;
      const int64_t took = std::chrono::duration_cast<milliseconds>(Clock::now() - began).count();
      longest = std::max(longest.load(), took);
    }
  });
  for (int i = 1; i <= 5; ++i) {
    std::this_thread::sleep_for(milliseconds(50));
    host_.Down();
    std::this_thread::sleep_for(milliseconds(100));
    host_.Up();
    EXPECT_TRUE(Resumed(i));
  }
  done = true;
  caller.join();
  RecordProperty("longest_gap_ms", static_cast<int>(longest));
  EXPECT_LT(longest, 1000);
  EXPECT_EQ(lost_, 0);
}

TEST_F(Resume, SessionAwaitedIsRepeatedAsBusyIs) {
  std::atomic<int> awaited = 3;
  register_ = [&](int, const auto& request, auto* response) {
    if (awaited-- > 0) return MakeError(v1::SESSION_AWAITED, "not attached again yet");
    return GrantFresh(1, request, response);
  };
  host_.Restart();
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  EXPECT_TRUE(client.RegMsgs(*buffer).ok());
  EXPECT_EQ(host_.services().registers().size(), 4u);
}

TEST_F(Resume, BuffersArePassedAgainBeforeTheirNextUseAndCountedAnew) {
  Client client = Attach();
  std::vector<Buffer> buffers;
  buffers.reserve(client.welcome().limits().max_buffers());
  while (buffers.size() < buffers.capacity()) {
    buffers.push_back(std::move(*client.CreateBuffer(4096)));
    ASSERT_TRUE(client.RegMsgs(buffers.back()).ok());
  }
  const size_t all = buffers.size();
  EXPECT_TRUE(Soon([&] { return host_.passed().size() == all; }));
  host_.Restart();
  ASSERT_TRUE(Resumed());
  EXPECT_EQ(host_.passed().size(), all) << "none that nobody uses";
  for (const Buffer& buffer : buffers) ASSERT_TRUE(client.RegMsgs(buffer).ok());
  for (const Buffer& buffer : buffers) ASSERT_TRUE(client.RegMsgs(buffer).ok());
  EXPECT_TRUE(Soon([&] { return host_.passed().size() == 2 * all; }));
  const auto passed = host_.passed();
  for (size_t i = 0; i < all; ++i) EXPECT_EQ(passed[i], passed[all + i]);
}

TEST_F(Resume, ABufferThatTheDaemonOfNowNeverHadIsReleasedWithoutAsking) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  ASSERT_TRUE(client.RegMsgs(*buffer).ok());
  host_.Restart();
  ASSERT_TRUE(Resumed());
  EXPECT_TRUE(buffer->Release().ok());
  EXPECT_TRUE(host_.services().released().empty());
}

// A ttl goes on while the daemon is away.
TEST_F(Resume, LeasesAreRenewedAtOnce) {
  ttl_ms_ = 3'600'000;
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  const Range range(*buffer);
  auto regions =
      client.Register({.preset = v1::Access::REG_MSGS, .ttl = std::chrono::hours(1)}, {&range, 1});
  ASSERT_TRUE(regions.ok()) << regions.status();
  EXPECT_EQ(host_.services().renewals(), 0);
  host_.Restart();
  EXPECT_TRUE(Soon([&] { return host_.services().renewals() == 1; }));
}

TEST_F(Resume, NobodyKnowsWhetherAListenHadAnEffectUnderWhichTheConnectionBroke) {
  std::promise<void> under_way;
  std::atomic<bool> first = true;
  listen_ = [&](int) {
    if (first.exchange(false)) {
      under_way.set_value();
      std::this_thread::sleep_for(milliseconds(300));
    }
    return absl::OkStatus();
  };
  host_.Restart();
  Client client = Attach();
  auto listener = std::async(std::launch::async, [&] { return client.Listen({}); });
  under_way.get_future().wait();
  host_.Restart();
  const absl::Status status = listener.get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("nobody knows"), HasSubstr("ListEndpoints tells")));
  EXPECT_EQ(host_.services().listens(), 0);
}

TEST_F(Resume, AListenThatWasNotSentWaitsAndIsSentOnce) {
  Client client = Attach();
  host_.Down();
  auto listener = std::async(std::launch::async, [&] { return client.Listen({}); });
  EXPECT_EQ(listener.wait_for(milliseconds(200)), std::future_status::timeout);
  host_.Up();
  EXPECT_TRUE(listener.get().ok());
  EXPECT_EQ(host_.services().listens(), 1);
}

TEST_F(Resume, DetachingWhileTheDaemonIsAwayReturnsAtOnceAndEndsWhatWaits) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  host_.Down();
  auto waiting = std::async(std::launch::async, [&] { return client.RegMsgs(*buffer).status(); });
  auto listening = std::async(std::launch::async, [&] { return client.Listen({}).status(); });
  EXPECT_EQ(waiting.wait_for(milliseconds(200)), std::future_status::timeout);
  const auto began = Clock::now();
  client.Detach();
  EXPECT_LT(Clock::now() - began, milliseconds(500));
  EXPECT_EQ(ReasonOf(waiting.get()), v1::SESSION_UNKNOWN);
  EXPECT_EQ(ReasonOf(listening.get()), v1::SESSION_UNKNOWN);
  EXPECT_LT(Clock::now() - began, seconds(2));
  host_.Up();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(host_.hellos().size(), 1u);
  EXPECT_EQ(lost_, 0);
}

TEST_F(Resume, DestroyingAllWhileTheDaemonIsAwayDoesNotWaitForIt) {
  const auto began = [&] {
    Client client = Attach();
    auto buffer = client.CreateBuffer(4096);
    auto region = client.RegMsgs(*buffer);
    auto listener = client.Listen({});
    EXPECT_TRUE(region.ok() && listener.ok());
    host_.Down();
    return Clock::now();
  }();
  EXPECT_LT(Clock::now() - began, seconds(2));
}

TEST_F(Resume, WhatWasDestroyedWhileTheDaemonWasAwayIsEndedWhenItIsBack) {
  Client client = Attach();
  auto buffer = client.CreateBuffer(4096);
  uint64_t lease = 0;
  {
    auto region = client.RegMsgs(*buffer);
    auto listener = client.Listen({});
    ASSERT_TRUE(region.ok() && listener.ok());
    lease = region->lease_id();
    host_.Down();
  }
  host_.Up();
  EXPECT_TRUE(Soon([&] { return host_.services().deregisters().size() == 1; }));
  EXPECT_THAT(host_.services().deregisters().at(0).lease_ids(), ElementsAre(lease));
  EXPECT_EQ(host_.services().disconnected().size(), 1u);
}

// Else the session would not be attached again in time.
TEST_F(Resume, ACallbackMayWaitForTheDaemonToComeBack) {
  std::promise<absl::Status> called;
  Client* in_callback = nullptr;
  std::promise<void> attached;
  std::atomic<bool> first = true;
  Client client = Attach({.on_event = [&](const v1::AttachEvent&) {
    if (!first.exchange(false)) return;
    attached.get_future().wait();
    host_.Down();
    std::thread up([&] {
      std::this_thread::sleep_for(milliseconds(200));
      host_.Up();
    });
    auto buffer = in_callback->CreateBuffer(4096);
    const absl::Status status = in_callback->RegMsgs(*buffer).status();
    up.join();
    called.set_value(status);
  }});
  in_callback = &client;
  attached.set_value();
  host_.Tell({});
  const absl::Status status = called.get_future().get();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(Resume, ACallbackOfTheNewConnectionMayDestroyTheClient) {
  std::unique_ptr<Client> client;
  std::promise<void> attached, destroyed;
  client = std::make_unique<Client>(Attach({.on_event = [&](const v1::AttachEvent&) {
    attached.get_future().wait();
    client.reset();
    destroyed.set_value();
  }}));
  attached.set_value();
  host_.Restart();
  EXPECT_EQ(destroyed.get_future().wait_for(seconds(10)), std::future_status::ready);
}

TEST_F(Resume, ASessionThatTheOperatorEndedIsNotTakenUpAgain) {
  Client client = Attach();
  v1::AttachEvent event;
  event.set_kind(v1::AttachEvent::REVOKED);
  host_.Tell(event);
  host_.HangUp();
  EXPECT_TRUE(Soon([&] { return lost_ == 1; }));
  EXPECT_EQ(ReasonOf(client.SessionStatus()), v1::SESSION_UNKNOWN);
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(host_.hellos().size(), 1u);
}

TEST_F(Resume, ManyEventsBeforeAHangUpAreAllTold) {
  std::atomic<int> events = 0;
  Client client = Attach({.on_event = [&](const v1::AttachEvent&) {
    std::this_thread::sleep_for(milliseconds(2));
    ++events;
  }});
  for (int i = 0; i < 60; ++i) host_.Tell({});
  host_.Restart();
  EXPECT_TRUE(Soon([&] { return events == 61; })) << events;
}

}  // namespace
}  // namespace mrd::testing
