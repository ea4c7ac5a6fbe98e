// Warnings that a client can cause at will: at most one a minute for each uid, so that it is told
// of and cannot fill the log.
#ifndef MRD_DAEMON_IPC_SPARSE_WARNINGS_H_
#define MRD_DAEMON_IPC_SPARSE_WARNINGS_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "daemon/log.h"
#include "daemon/mutex.h"

namespace mrd::ipc {

// Thread-safe.
class SparseWarnings {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::minutes kEvery{1};

  // Something to warn of. A value: now is the time to, and so often it happened before without a
  // warning, since the last one.
  std::optional<uint64_t> Happened(uid_t uid, Clock::time_point now = Clock::now());

  // Logs `text` where Happened says so, with how often it happened since the last time.
  void Warn(uid_t uid, const std::string& text, const log::Fields& fields = {});

 private:
  struct Entry {
    Clock::time_point warned;
    uint64_t silent = 0;
  };
  Mutex mutex_;
  std::unordered_map<uid_t, Entry> by_uid_
      MRD_GUARDED_BY(mutex_);  // Those of which there was a warning not long ago.
};

}  // namespace mrd::ipc

#endif  // MRD_DAEMON_IPC_SPARSE_WARNINGS_H_
