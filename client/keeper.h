// The thread that keeps a session: it reads the daemon's events and, when the daemon hangs up,
// attaches again, restores the session, or tells that it is lost.
#ifndef MRD_CLIENT_KEEPER_H_
#define MRD_CLIENT_KEEPER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "client/attach_handshake.h"
#include "client/unique_fd.h"

namespace mrd::internal {

class Session;

class Keeper final {
 public:
  // `session` is connected, and outlives this. `stop`: an eventfd.
  Keeper(Session& session, const v1::AttachWelcome& welcome, UniqueFd stop);
  // Waits for the thread. REQUIRES: Stop(), and not a forked child.
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  // The thread ends soon, and restores nothing more. Thread-safe.
  void Stop();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Gone { kStopped, kHungUp, kNonsense, kRevoked };

  void Run();
  Gone Read();
  void Take(const v1::AttachEvent& event);
  bool Recover(Gone how);
  bool Restore(std::optional<Attached> attached, Clock::time_point give_up);
  void Installed(const v1::AttachWelcome& welcome);
  // Returns false.
  bool Lose(const absl::Status& why);
  absl::Status LostError(const std::string& how) const;

  Session& session_;
  const UniqueFd stop_;
  std::atomic<bool> stopping_ = false;

  // The thread's own.
  std::string token_;
  bool resumes_ = false;  // The daemon keeps the session over its restart.
  Clock::time_point installed_;
  int short_lives_ = 0;  // Connections in a row that were lost soon.
  bool revoked_ = false;

  std::thread thread_;
};

}  // namespace mrd::internal

#endif  // MRD_CLIENT_KEEPER_H_
