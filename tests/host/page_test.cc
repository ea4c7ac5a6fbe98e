#include "daemon/host/metrics/page.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <thread>

namespace mrd::host {
namespace {

TEST(PageTest, ManyWhoAskAtOnceShareOneText) {
  std::atomic<int> made = 0;
  Page page([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return std::to_string(++made);
  });
  std::vector<std::thread> askers;
  for (int i = 0; i < 16; ++i) {
    askers.emplace_back([&] {
      for (int j = 0; j < 100; ++j) page.Get();
    });
  }
  for (std::thread& asker : askers) asker.join();
  EXPECT_LE(made, 3);
}

TEST(PageTest, ATextOlderThanASecondIsMadeAnew) {
  int made = 0;
  Page page([&] { return std::to_string(++made); });
  EXPECT_EQ(*page.Get(), "1");
  std::this_thread::sleep_for(Page::kFresh + std::chrono::milliseconds(50));
  EXPECT_EQ(*page.Get(), "2");
}

TEST(PageTest, AskReturnsAtOnceAndEveryoneIsAnsweredBeforeTheEnd) {
  std::promise<void> go;
  std::atomic<int> answered = 0;
  {
    Page page([future = go.get_future().share()] {
      future.wait();
      return std::string("text");
    });
    for (int i = 0; i < 10; ++i) {
      page.Ask([&](const Page::Text& text) { answered += *text == "text"; });
    }
    EXPECT_EQ(answered, 0);
    go.set_value();
  }
  EXPECT_EQ(answered, 10);
}

}  // namespace
}  // namespace mrd::host
