// How often a process has crashed at something, told to the next one.
#ifndef MRD_DAEMON_BROKER_CRASH_COUNT_H_
#define MRD_DAEMON_BROKER_CRASH_COUNT_H_

#include <signal.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace mrd::broker {

// Counts, while it lives, that this process crashes: by a signal of its own fault. What kills it
// from outside is not counted. One at a time, before other threads change signals' actions.
class CrashCount {
 public:
  // `counter` outlives it and, to be of use, the process.
  explicit CrashCount(std::atomic<uint64_t>& counter) {
    counter_ = &counter;
    struct sigaction action = {};
    action.sa_handler = OnCrash;
    action.sa_flags = SA_RESETHAND | SA_NODEFER;
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before_[i]);
  }
  ~CrashCount() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    counter_ = nullptr;
  }
  CrashCount(const CrashCount&) = delete;
  CrashCount& operator=(const CrashCount&) = delete;

 private:
  static constexpr int kSignals[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};

  static void OnCrash(int signal) {
    if (auto* const counter = counter_.exchange(nullptr)) counter->fetch_add(1);
    raise(signal);
  }

  static inline std::atomic<std::atomic<uint64_t>*> counter_ = nullptr;
  struct sigaction before_[std::size(kSignals)];
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_CRASH_COUNT_H_
