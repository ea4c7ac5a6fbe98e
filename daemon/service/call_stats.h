// How many calls of each method ended with which code, and how long they took.
#ifndef MRD_DAEMON_SERVICE_CALL_STATS_H_
#define MRD_DAEMON_SERVICE_CALL_STATS_H_

#include <array>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "daemon/mutex.h"
#include "daemon/stats.h"

namespace mrd::service {

// A text that takes a while to make. Calls back once, from any thread; does not block its caller.
using TextSource =
    std::function<void(std::function<void(std::shared_ptr<const std::string>)> done)>;

// gRPC's codes, 0 to 16.
inline constexpr int kCodes = 17;

// Of one method. Thread-safe, lock-free.
class CallStats {
 public:
  void Finished(int code, std::chrono::nanoseconds took) {
    by_code_[code >= 0 && code < kCodes ? code : 2].Add();  // 2: UNKNOWN.
    durations_.Add(took);
  }

  uint64_t count(int code) const { return by_code_[code].value(); }
  const stats::Durations& durations() const { return durations_; }

 private:
  std::array<stats::Counter, kCodes> by_code_;
  stats::Durations durations_;
};

// Thread-safe.
class CallTable {
 public:
  // Lives as long as the table. A method asks once, as it is set up: no call looks here.
  CallStats& Of(const std::string& method) {
    MutexLock lock(mutex_);
    return methods_[method];
  }

  template <typename Visit>
  void ForEach(Visit visit) const {
    MutexLock lock(mutex_);
    for (const auto& [method, stats] : methods_) visit(method, stats);
  }

 private:
  mutable Mutex mutex_;
  std::map<std::string, CallStats> methods_ MRD_GUARDED_BY(mutex_);  // Nodes stay where they are.
};

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_CALL_STATS_H_
