#include "tests/vm/probe/walk.h"

#include <signal.h>
#include <stdio.h>
#include <time.h>

#include <algorithm>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/vm/probe/kernel_counts.h"
#include "tests/vm/probe/speaker.h"
#include "tests/vm/probe/walk_client.h"
#include "tests/vm/probe/words.h"

namespace probe {
namespace {

using Clock = WalkClient::Clock;

constexpr uint64_t kQuietPoints = 8;
constexpr uint64_t kPage = 4096;

void SleepUntil(Clock::time_point until) {
  const auto left = until - Clock::now();
  if (left.count() <= 0) return;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  const timespec time = {ns / 1'000'000'000, ns % 1'000'000'000};
  nanosleep(&time, nullptr);
}

class Walk final {
 public:
  Walk(const WalkOptions& options, Speaker admin)
      : options_(options), random_(options.seed), admin_(std::move(admin)) {}

  absl::Status Run() {
    auto answer = admin_.Say("attach walk-admin admin");
    if (!answer.ok()) return answer.status();
    clients_.resize(options_.clients);
    for (uint64_t i = 0; i < options_.clients; ++i) {
      if (absl::Status status = Start(i); !status.ok()) return status;
    }
    for (uint64_t i = 1; i <= options_.operations; ++i) {
      if (absl::Status status = Step(); !status.ok()) return status;
      if (i % std::max<uint64_t>(1, options_.operations / kQuietPoints) != 0) continue;
      if (absl::Status status = QuietPoint(i); !status.ok()) return status;
    }
    for (auto& client : clients_) client->Kill();
    clients_.clear();
    return QuietPoint(options_.operations);
  }

  std::string Summary() const {
    std::string text = absl::StrCat("clients_in_all=", started_);
    for (const auto& [what, times] : tally_) absl::StrAppend(&text, " ", what, "=", times);
    return text;
  }

 private:
  absl::Status Start(uint64_t i) {
    auto client = WalkClient::Start(options_.client, options_.devices, i % 2 == 0, started_++);
    if (!client.ok()) return client.status();
    clients_[i].emplace(std::move(*client));
    return absl::OkStatus();
  }

  absl::Status Step() {
    const uint64_t i = random_() % clients_.size();
    if (random_() % 40 != 0) return clients_[i]->Step(random_, tally_);
    // In the middle of whatever it was doing.
    clients_[i]->Kill();
    clients_[i].reset();
    ++tally_["killed"];
    return Start(i);
  }

  absl::Status QuietPoint(uint64_t operations) {
    WalkClient::Holdings expected;
    for (auto& client : clients_) {
      if (absl::Status status = client->Settle(tally_); !status.ok()) return status;
      if (const auto at = client->quiet_at()) SleepUntil(*at);
    }
    for (const auto& client : clients_) {
      const WalkClient::Holdings of = client->Expected();
      expected.regions += of.regions;
      expected.pages += of.pages;
    }
    const auto start = Clock::now();
    for (;;) {
      auto found = Compare(expected);
      if (!found.ok()) return found.status();
      const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
      if (found->empty()) {
        printf(
            "quiet after %lu operations: regions=%lu pinned_bytes=%lu, as expected after %ld ms\n",
            operations, expected.regions, expected.pages * kPage, static_cast<long>(took.count()));
        return absl::OkStatus();
      }
      if (took > options_.second) return absl::InternalError(*found);
      SleepUntil(Clock::now() + std::chrono::milliseconds(5));
    }
  }

  // What is not as expected; empty: nothing.
  absl::StatusOr<std::string> Compare(const WalkClient::Holdings& expected) {
    auto totals = admin_.Say("totals");
    if (!totals.ok()) return totals.status();
    const auto kernel_regions = KernelRegions();
    if (!kernel_regions.ok()) return kernel_regions.status();
    const auto kernel_pinned = KernelPinnedBytes(options_.daemon);
    if (!kernel_pinned.ok()) return kernel_pinned.status();
    const auto regions = ParseNumber(Field(*totals, "regions").value_or("none"));
    const auto pinned = ParseNumber(Field(*totals, "pinned_bytes").value_or("none"));
    if (!regions.ok() || !pinned.ok()) return absl::InternalError(*totals);
    if (*regions == expected.regions && *kernel_regions == expected.regions &&
        *pinned == expected.pages * kPage && *kernel_pinned == *pinned) {
      return "";
    }
    return absl::StrCat("regions: expected ", expected.regions, ", in the books ", *regions,
                        ", in the kernel ", *kernel_regions, "; pinned bytes: expected ",
                        expected.pages * kPage, ", in the books ", *pinned, ", in the kernel ",
                        *kernel_pinned);
  }

  const WalkOptions& options_;
  std::mt19937_64 random_;
  Speaker admin_;
  std::vector<std::optional<WalkClient>> clients_;
  uint64_t started_ = 0;
  WalkClient::Tally tally_;
};

}  // namespace

int RunWalk(const WalkOptions& options) {
  // A dead client is a failure of what it was told, no end of the walk.
  signal(SIGPIPE, SIG_IGN);
  auto admin = Speaker::Start({"/proc/self/exe"});
  if (!admin.ok()) return 1;
  Walk walk(options, std::move(*admin));
  const absl::Status status = walk.Run();
  printf("seed=%lu operations=%lu %s\n", options.seed, options.operations, walk.Summary().c_str());
  if (!status.ok()) printf("failed: %s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace probe
