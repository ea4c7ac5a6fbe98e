// Registrations that take seconds, more of them than the pool has threads, delay nobody else.
#include <atomic>
#include <thread>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

// MRD_SLOW_MS: how long the slow device takes. The promise is made for 20 s; the daemon cannot
// tell the difference.
std::string SlowMs() {
  const char* given = getenv("MRD_SLOW_MS");
  return given != nullptr ? given : "3000";
}

class SlowDeviceTest : public DaemonTest {
 protected:
  void SetUp() override {
    Start({.fabric = "verbs", .devices = "devices=fake0,slow0;slow0.reg_delay_ms=" + SlowMs()});
    hog_ = std::make_unique<RawClient>(dir());
    auto slow = RequestFor(hog_->Pass(memory_), memory_);
    slow.add_devices("slow0");
    const unsigned threads = std::max(4u, std::thread::hardware_concurrency());
    for (unsigned i = 0; i < 2 * threads; ++i) {
      running_.emplace_back([this, slow] {
        EXPECT_TRUE(hog_->Register(slow).ok());
        ++done_;
      });
    }
    // Those that have a thread have booked.
    ASSERT_TRUE(WaitUntil(kPatience, [this] { return Look().regions > 0; }));
  }
  void TearDown() override {
    for (std::thread& call : running_) call.join();
    hog_ = nullptr;
    DaemonTest::TearDown();
  }
  // Repeats `call` for as long as the slow device is at work: the slowest.
  template <typename Call>
  milliseconds Slowest(Call call) {
    milliseconds slowest{0};
    int calls = 0;
    while (done_ < 2) {
      const auto began = Clock::now();
      call();
      slowest = std::max(slowest, std::chrono::duration_cast<milliseconds>(Clock::now() - began));
      ++calls;
    }
    EXPECT_GT(calls, 10);
    printf("%d calls meanwhile, the slowest took %lld ms\n", calls,
           static_cast<long long>(slowest.count()));
    return slowest;
  }

  const Memory memory_{kPage};
  const Memory large_{8 << 20};
  std::unique_ptr<RawClient> hog_;
  std::vector<std::thread> running_;
  std::atomic<int> done_ = 0;
};

TEST_F(SlowDeviceTest, NoOtherSessionsCallIsDelayed) {
  RawClient other(dir());
  const auto call = [&] {
    EXPECT_TRUE(other.GetStatus().ok());
    EXPECT_TRUE(other.ListLeases().ok());
    EXPECT_TRUE(other.ListDevices().ok());
  };
  EXPECT_LT(Slowest(call), Promised(milliseconds(100)));
}

TEST_F(SlowDeviceTest, NoOtherSessionsRegistrationOnAnotherDeviceIsDelayed) {
  RawClient other(dir());
  const uint64_t small = other.Pass(memory_);
  const uint64_t large = other.Pass(large_);
  const auto call = [&] {
    for (const auto& request : {RequestFor(small, memory_), RequestFor(large, large_)}) {
      const auto made = other.Register(request);
      ASSERT_TRUE(made.ok()) << made.text();
      EXPECT_TRUE(other.Deregister({made.response.leases(0).lease_id()}).ok());
    }
  };
  EXPECT_LT(Slowest(call), Promised(milliseconds(100)));
}

TEST_F(SlowDeviceTest, NewSessionsAttachAndRegisterAtOnce) {
  const auto call = [&] {
    RawClient fresh(dir());
    fresh.RegisterAll(memory_);
  };
  EXPECT_LT(Slowest(call), Promised(milliseconds(100)));
}

TEST_F(SlowDeviceTest, TheSameSessionsOtherCallsAreNotDelayedEither) {
  const auto call = [&] {
    EXPECT_TRUE(hog_->GetStatus().ok());
    EXPECT_TRUE(hog_->ListLeases().ok());
  };
  EXPECT_LT(Slowest(call), Promised(milliseconds(100)));
}

}  // namespace
}  // namespace mrd::e2e
