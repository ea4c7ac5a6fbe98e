// Whether those that serve calls answer, as the watchdog asks them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "daemon/service/server.h"
#include "tests/broker/broker_fixture.h"

namespace mrd::service {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class PingTest : public broker::BrokerTest {
 protected:
  PingTest() : server_(Server::Start(*broker_, {})) {}
  ~PingTest() override {
    if (!shut_) server_->Shutdown();
  }

  void Shutdown() {
    server_->Shutdown();
    shut_ = true;
  }
  // Ready once it has been answered.
  std::future<void> Ping() {
    auto answered = std::make_shared<std::promise<void>>();
    server_->Ping([answered] { answered->set_value(); });
    return answered->get_future();
  }
  static bool Comes(const std::future<void>& answer, milliseconds within = seconds(20)) {
    return answer.wait_for(within) == std::future_status::ready;
  }

  const std::unique_ptr<Server> server_;
  bool shut_ = false;
};

TEST_F(PingTest, IsAnsweredByAThreadOfTheServers) {
  std::promise<std::thread::id> by;
  server_->Ping([&by] { by.set_value(std::this_thread::get_id()); });
  EXPECT_NE(by.get_future().get(), std::this_thread::get_id());
  std::vector<std::future<void>> more;
  for (int i = 0; i < 100; ++i) more.push_back(Ping());
  for (const auto& answer : more) EXPECT_TRUE(Comes(answer));
}

TEST_F(PingTest, IsNotAnsweredWhileAllThreadsOfTheServerAreStuck) {
  // As many as poll, and more: each keeps the thread that answers it.
  constexpr size_t kStuck = 32;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::vector<std::future<void>> left;
  for (size_t i = 0; i < kStuck; ++i) {
    auto out = std::make_shared<std::promise<void>>();
    left.push_back(out->get_future());
    server_->Ping([out, released] {
      released.wait();
      out->set_value();
    });
  }
  const std::future<void> ping = Ping();
  EXPECT_FALSE(Comes(ping, milliseconds(300)));
  release.set_value();
  EXPECT_TRUE(Comes(ping));
  for (const auto& each : left) EXPECT_TRUE(Comes(each));
}

TEST_F(PingTest, IsNotAnsweredAfterTheEnd) {
  Shutdown();
  bool answered = false;
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> kept = held;
  server_->Ping([&answered, held = std::move(held)] { answered = true; });
  EXPECT_TRUE(kept.expired());
  EXPECT_FALSE(answered);
}

}  // namespace
}  // namespace mrd::service
