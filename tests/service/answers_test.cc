#include "daemon/service/answers.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

namespace mrd::service {
namespace {

using std::chrono::seconds;

// Says in which order answers were cancelled.
class FakeAnswer : public Answer {
 public:
  FakeAnswer(int number, std::vector<int>* order) : number_(number), order_(order) {}

  void Hold() override { ++held_; }
  void Cancel() override {
    --held_;
    order_->push_back(number_);
  }
  int held() const { return held_; }

 private:
  const int number_;
  std::vector<int>* const order_;
  int held_ = 0;
};

class AnswersTest : public testing::Test {
 protected:
  Answers::Ticket Start(int number, std::optional<uint32_t> uid, size_t bytes) {
    all_.emplace_back(number, &cancelled_);
    return answers_.Started(&all_.back(), uid, bytes, now_);
  }
  void TearDown() override {
    for (const FakeAnswer& each : all_) EXPECT_EQ(each.held(), 0);
  }

  Answers answers_{100};
  Answers::Clock::time_point now_{};
  std::deque<FakeAnswer> all_;
  std::vector<int> cancelled_;
};

TEST_F(AnswersTest, TheOldestOfTheUserThatHasTheMostIsCancelled) {
  Start(1, 7, 40);
  Start(2, 8, 30);
  Start(3, 8, 30);
  EXPECT_TRUE(cancelled_.empty());
  Start(4, 7, 1);
  EXPECT_EQ(cancelled_, (std::vector{2}));
}

TEST_F(AnswersTest, CallsWithoutASessionAreOneUser) {
  Start(1, 7, 30);
  for (int i = 2; i < 10; ++i) Start(i, std::nullopt, 20);
  EXPECT_EQ(cancelled_, (std::vector{2, 3, 4, 5, 6}));
}

TEST_F(AnswersTest, OneThatIsTooLargeByItselfIsCancelled) {
  Start(1, 7, 10);
  Start(2, 8, 101);
  EXPECT_EQ(cancelled_, (std::vector{2}));
}

TEST_F(AnswersTest, WhatHasGoneOutCountsNoMore) {
  const auto first = Start(1, 7, 60);
  answers_.Ended(first);
  const auto second = Start(2, 7, 60);
  EXPECT_TRUE(cancelled_.empty());
  Start(3, 7, 60);
  EXPECT_EQ(cancelled_, (std::vector{2}));
  answers_.Ended(second);  // gRPC says so in any case.
  Start(4, 7, 40);
  EXPECT_EQ(cancelled_, (std::vector{2})) << "it was not taken off twice";
}

TEST_F(AnswersTest, EachIsCancelledOnceAfterTenSeconds) {
  Start(1, 7, 1);
  now_ += seconds(5);
  const auto second = Start(2, std::nullopt, 1);
  answers_.Sweep(now_);
  EXPECT_TRUE(cancelled_.empty());
  now_ += seconds(5);
  answers_.Sweep(now_);
  answers_.Sweep(now_);
  EXPECT_EQ(cancelled_, (std::vector{1}));
  answers_.Ended(second);
  now_ += seconds(5);
  answers_.Sweep(now_);
  EXPECT_EQ(cancelled_, (std::vector{1}));
}

}  // namespace
}  // namespace mrd::service
