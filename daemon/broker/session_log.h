// Lines about sessions, which clients can cause at will: each session has some a minute, all
// sessions of a user together some more, and one line says how many were left out.
#ifndef MRD_DAEMON_BROKER_SESSION_LOG_H_
#define MRD_DAEMON_BROKER_SESSION_LOG_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "daemon/broker/observer.h"
#include "daemon/log.h"
#include "daemon/mutex.h"

namespace mrd::broker {

struct Identity;

// Thread-safe. Keeps something only of those who were spoken of in the last minutes: of sessions no
// more than the users' shares allow lines.
class SessionLog {
 public:
  using Clock = std::chrono::steady_clock;

  // At once, and then so many a minute.
  static constexpr double kOfSession = 10;
  static constexpr double kOfUid = 40;
  static constexpr std::chrono::minutes kPer{1};

  explicit SessionLog(Observer& observer) : observer_(observer) {}

  // Writes a line with the fields session, uid and pid before `fields`, or counts it as left out.
  // Lines of level debug have no bound: who asks for them wants all.
  void Write(spdlog::level::level_enum level, uint64_t session_id, const Identity& who,
             std::string_view text, const log::Fields& fields = {},
             Clock::time_point now = Clock::now()) MRD_EXCLUDES(mutex_);

  // Says how many lines were left out, of whom it was not said for a minute; forgets who is quiet.
  // To be called about every second.
  void Sweep(Clock::time_point now = Clock::now()) MRD_EXCLUDES(mutex_);

 private:
  // Fills up with time, up to what it has at once.
  struct Share {
    double left;
    Clock::time_point filled;
    uint64_t left_out = 0;
    Clock::time_point told;  // Last written, or said what was left out.

    void Fill(double most, Clock::time_point now);
    bool quiet(double most) const { return left >= most && left_out == 0; }
  };
  struct OfSession {
    uint32_t uid;
    Share share;
  };

  // How many were left out before this one; nothing: it is left out itself.
  std::optional<uint64_t> Admit(uint64_t session_id, uint32_t uid, Clock::time_point now)
      MRD_EXCLUDES(mutex_);

  Observer& observer_;
  Mutex mutex_;
  std::unordered_map<uint64_t, OfSession> sessions_ MRD_GUARDED_BY(mutex_);
  std::unordered_map<uint32_t, Share> uids_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::broker

#endif  // MRD_DAEMON_BROKER_SESSION_LOG_H_
