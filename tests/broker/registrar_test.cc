#include "daemon/broker/registrar.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <vector>

#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

// Each session of a uid of its own.
Owner Of(uint64_t session_id) { return {session_id, static_cast<uint32_t>(session_id)}; }

TEST(Registrar, ASessionHasAtMostHalfOfTheThreads) {
  const Limits limits;
  std::promise<void> release;
  const auto released = release.get_future().share();
  std::atomic<int> running = 0;
  std::promise<void> other_ran;
  Registrar registrar(limits, 4);
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(registrar
                    .Submit(Of(1), 0,
                            [&] {
                              ++running;
                              released.wait();
                            })
                    .ok());
  }
  ASSERT_TRUE(registrar.Submit(Of(2), 0, [&] { other_ran.set_value(); }).ok());
  other_ran.get_future().wait();
  EXPECT_LE(running, 2);
  release.set_value();
}

TEST(Registrar, RefusesAtOnceBeyondTheBoundOfASession) {
  Limits limits;
  limits.queued = 3;
  bool ended = false;
  std::promise<void> release;
  const auto released = release.get_future().share();
  std::latch started(2);
  auto threads = std::make_unique<Registrar>(limits, 4);
  Registrar& registrar = *threads;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(registrar
                    .Submit(Of(1), 0,
                            [&] {
                              started.count_down();
                              released.wait();
                            })
                    .ok());
  }
  started.wait();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(registrar.Submit(Of(1), 0, [] {}).ok());
  const auto refusal = registrar.Submit(Of(1), 0, [] {});
  EXPECT_EQ(ReasonOf(refusal), v1::BUSY);
  EXPECT_EQ(DetailOf(refusal)->limit(), 3u);
  EXPECT_EQ(DetailOf(refusal)->used(), 3u);
  EXPECT_TRUE(registrar.Submit(Of(2), 0, [] {}).ok());
  registrar.SubmitCleanup(Of(1), [&] { ended = true; });
  release.set_value();
  threads = nullptr;
  EXPECT_TRUE(ended) << "a cleanup is never refused";
}

TEST(Registrar, TheSessionsOfAUidLeaveAThreadToOthersAndEndsHaveOne) {
  Limits limits;
  limits.queued_of_uid = 3;
  std::promise<void> release;
  const auto released = release.get_future().share();
  std::latch started(3);
  std::promise<void> other_ran, end_ran;
  Registrar registrar(limits, 4);
  uint64_t session = 0;
  const auto hold = [&] {
    started.count_down();
    released.wait();
  };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(registrar.Submit({++session, 7}, 0, hold).ok());
  started.wait();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(registrar.Submit({++session, 7}, 0, [] {}).ok());
  const auto refusal = registrar.Submit({++session, 7}, 0, [] {});
  EXPECT_EQ(ReasonOf(refusal), v1::BUSY);
  EXPECT_EQ(DetailOf(refusal)->limit_name(), "queued registrations of the uid");
  registrar.SubmitCleanup({1, 7, /*ends=*/true}, [&] { end_ran.set_value(); });
  end_ran.get_future().wait();
  ASSERT_TRUE(registrar.Submit({++session, 8}, 0, [&] { other_ran.set_value(); }).ok());
  other_ran.get_future().wait();
  EXPECT_EQ(registrar.queued(), 3u);
  release.set_value();
}

// Whatever others do.
TEST(Registrar, AnEndDoesNotWaitForWorkThatHasAllThreads) {
  std::promise<void> release;
  const auto released = release.get_future().share();
  std::latch started(4);
  std::promise<void> end_ran;
  Registrar registrar(Limits(), 4);
  for (uint64_t session = 1; session <= 4; ++session) {
    const Owner owner{session, static_cast<uint32_t>(session)};
    ASSERT_TRUE(registrar
                    .Submit(owner, 0,
                            [&] {
                              started.count_down();
                              released.wait();
                            })
                    .ok());
  }
  started.wait();
  registrar.SubmitCleanup({1, 1, /*ends=*/true}, [&] { end_ran.set_value(); });
  end_ran.get_future().wait();
  release.set_value();
}

TEST(Registrar, SmallWorkGoesBeforeLarge) {
  const Limits limits;
  std::promise<void> release;
  const auto released = release.get_future().share();
  std::promise<void> started;
  Mutex mutex;
  std::vector<int> order;
  {
    Registrar registrar(limits, 1);
    ASSERT_TRUE(registrar
                    .Submit(Of(1), 0,
                            [&] {
                              started.set_value();
                              released.wait();
                            })
                    .ok());
    started.get_future().wait();
    const auto note = [&](int what) {
      return [&, what] {
        MutexLock lock(mutex);
        order.push_back(what);
      };
    };
    ASSERT_TRUE(registrar.Submit(Of(2), uint64_t{1} << 40, note(100)).ok());
    ASSERT_TRUE(registrar.Submit(Of(3), 4096, note(1)).ok());
    ASSERT_TRUE(registrar.Submit(Of(4), 4096, note(2)).ok());
    release.set_value();
  }
  EXPECT_EQ(order, (std::vector<int>{1, 2, 100}));
}

TEST(Registrar, LargeWorkIsNotStarvedBySmall) {
  const Limits limits;
  std::promise<void> large_ran;
  std::atomic<bool> stop = false;
  std::function<void(uint64_t)> again;  // Outlives the threads that run it.
  Registrar registrar(limits, 2);
  again = [&](uint64_t session) {
    if (!stop) (void)registrar.Submit(Of(session), 0, [&, session] { again(session); });
  };
  for (uint64_t session = 1; session <= 4; ++session) again(session);
  ASSERT_TRUE(registrar.Submit(Of(9), uint64_t{1} << 40, [&] { large_ran.set_value(); }).ok());
  EXPECT_EQ(large_ran.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
  stop = true;
}

TEST(Registrar, OneThreadThatTakesCallsIsAlwaysLeft) {
  const Limits limits;
  Registrar registrar(limits, 4);
  registrar.SetInlineSlots(1);
  const auto here = std::this_thread::get_id();
  std::promise<std::thread::id> inner;
  ASSERT_TRUE(
      registrar
          .RunSmall(Of(1),
                    [&] {
                      EXPECT_EQ(std::this_thread::get_id(), here);
                      EXPECT_TRUE(
                          registrar
                              .RunSmall(Of(2), [&] { inner.set_value(std::this_thread::get_id()); })
                              .ok());
                      EXPECT_NE(inner.get_future().get(), here);
                    })
          .ok());
}

}  // namespace
}  // namespace mrd::broker
