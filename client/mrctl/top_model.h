// What `mrctl top` shows: sessions, with how often they call, in the order that was asked for.
#ifndef MRD_CLIENT_MRCTL_TOP_MODEL_H_
#define MRD_CLIENT_MRCTL_TOP_MODEL_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "mrd/v1/mrctl.pb.h"
#include "mrd/v1/session.pb.h"

namespace mrctl {

enum class TopOrder { kBytes, kRegions, kCalls, kRenewals, kLapses, kUnclaimed, kAge };

// By the key that a person presses, or the word of --sort; kOrderKeys has all keys.
inline constexpr char kOrderKeys[] = "brcnlua";
bool OrderOfKey(char key, TopOrder* order);
bool OrderOfWord(const std::string& word, TopOrder* order);
// "bytes", "regions", ...: in the order of the enum.
std::vector<std::string> OrderWords();

// Not thread-safe.
class TopModel final {
 public:
  using Clock = std::chrono::steady_clock;

  // What the daemon said at this time. Rates are over the time since the sample before; a session
  // that was not in it has them since it attached, in the time that has passed since, at most.
  void Take(Clock::time_point now, mrd::v1::GetStatusResponse status,
            std::vector<mrd::v1::Session> sessions);

  // The most, or the oldest, first; of the same number those that came first.
  void Sort(TopOrder order, bool reverse);

  const mrd::v1::TopSample& sample() const { return sample_; }
  double calls_per_second() const { return calls_per_second_; }
  // Of all sessions, since this was started.
  uint64_t new_lapses() const { return new_lapses_; }

 private:
  struct Counts {
    uint64_t calls;
    uint64_t renewals;
    uint64_t lapses;
  };

  bool first_ = true;
  Clock::time_point taken_;
  std::unordered_map<uint64_t, Counts> before_;  // By session.
  mrd::v1::TopSample sample_;
  double calls_per_second_ = 0;
  uint64_t new_lapses_ = 0;
};

}  // namespace mrctl

#endif  // MRD_CLIENT_MRCTL_TOP_MODEL_H_
