// A daemon of the program's own, in a process of its own, that tells how long it took over each
// call: for the daemon's own time, which a client cannot see.
#ifndef MRD_TESTS_BENCH_OWN_DAEMON_H_
#define MRD_TESTS_BENCH_OWN_DAEMON_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

namespace mrd::bench {

enum class OwnFabric { kSoft, kFake, kVerbs };

// The times that a daemon's process writes and this one reads.
class CallTimes {
 public:
  CallTimes();
  ~CallTimes();
  CallTimes(const CallTimes&) = delete;
  CallTimes& operator=(const CallTimes&) = delete;

  // Lock-free, from any thread of either process. Beyond a few million calls it drops them.
  void Add(const std::string& request, double seconds);
  void Clear();
  // Of calls with this request message.
  std::vector<double> Of(const std::string& request) const;

 private:
  struct Shared;
  Shared* const shared_;
};

class OwnDaemon {
 public:
  // REQUIRES: the process has no other thread yet: it forks.
  explicit OwnDaemon(OwnFabric fabric);
  // Ends it, and fails the program where it does not end well.
  ~OwnDaemon();
  OwnDaemon(const OwnDaemon&) = delete;
  OwnDaemon& operator=(const OwnDaemon&) = delete;

  std::string socket_dir() const { return dir_ + "/mrd"; }
  CallTimes& times() { return times_; }

 private:
  CallTimes times_;
  std::string dir_;
  pid_t pid_;
};

}  // namespace mrd::bench

#endif  // MRD_TESTS_BENCH_OWN_DAEMON_H_
