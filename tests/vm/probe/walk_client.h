// One client of a random walk, and what it should hold.
#ifndef TESTS_VM_PROBE_WALK_CLIENT_H_
#define TESTS_VM_PROBE_WALK_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/vm/probe/speaker.h"

namespace probe {

// Not thread-safe. Every operation that it begins is ended before the next, or by its death.
class WalkClient final {
 public:
  using Clock = std::chrono::steady_clock;

  struct Holdings {
    uint64_t regions = 0;
    uint64_t pages = 0;  // Whole ones, each region on each device counted.
  };
  // How often what happened, by a name.
  using Tally = std::map<std::string, uint64_t>;

  // `renews`: the library renews its leases, which stand; else those with a ttl lapse, unless the
  // walk renews them. `number`: the nth of all there were.
  static absl::StatusOr<WalkClient> Start(const std::vector<std::string>& command,
                                          std::vector<std::string> devices, bool renews,
                                          uint64_t number);

  // Ends the last operation and begins another.
  absl::Status Step(std::mt19937_64& random, Tally& tally);
  // Ends the last operation: whether it came out as it had to.
  absl::Status Settle(Tally& tally);
  // SIGKILL, whatever is under way.
  void Kill() { speaker_.Kill(); }

  // When the last of its leases that nobody renews has lapsed.
  std::optional<Clock::time_point> quiet_at() const;
  // What it holds after that; what has lapsed by then is forgotten as held, but tried again.
  // REQUIRES: settled.
  Holdings Expected() const;

 private:
  struct Held {
    Holdings holdings;
    std::chrono::milliseconds ttl{0};  // Positive: of a lease that nobody renews.
    Clock::time_point earliest;        // It lapses not before this,
    Clock::time_point latest;          // and at this time unless it is renewed.
  };
  // Looks at an answer to the operation that was told at that time.
  using Judge = std::function<absl::Status(const std::string& answer, Clock::time_point told)>;

  WalkClient(Speaker speaker, std::vector<std::string> devices, bool renews)
      : speaker_(std::move(speaker)), devices_(std::move(devices)), renews_(renews) {}

  absl::Status Begin(std::string line, std::string what, Judge judge);
  absl::Status Register(std::mt19937_64& random);
  absl::Status Deregister(std::mt19937_64& random);
  absl::Status Renew();
  absl::Status Refused(std::mt19937_64& random);
  absl::Status NewBuffer(std::mt19937_64& random);

  Speaker speaker_;
  std::vector<std::string> devices_;
  bool renews_;
  uint64_t buffer_bytes_ = 0;
  uint64_t next_name_ = 0;
  std::map<std::string, Held> held_;
  std::string line_;
  std::string what_;
  Clock::time_point told_;
  Judge judge_;  // Empty: nothing is under way.
};

}  // namespace probe

#endif  // TESTS_VM_PROBE_WALK_CLIENT_H_
