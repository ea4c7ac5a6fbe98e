#include "client/reattach.h"

#include <poll.h>

#include <algorithm>
#include <random>
#include <utility>

#include "client/attach_socket.h"
#include "mrd/v1/status.h"

namespace mrd::internal {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A full queue of connections does not keep who is to stop.
constexpr milliseconds kConnectTime{100};

// `low` at first, then an eighth of the time that it has taken so far: a client is late by no more
// than that. Shortened by up to a half, so that clients do not come in step.
milliseconds Pause(Clock::time_point began, milliseconds low, milliseconds high) {
  thread_local std::minstd_rand random{std::random_device{}()};
  const auto eighth = std::chrono::duration_cast<milliseconds>(Clock::now() - began) / 8;
  const milliseconds pause = std::clamp(eighth, low, high);
  return pause - milliseconds(random() % (pause.count() / 2 + 1));
}

// False: `stop` can be read.
bool Sleep(milliseconds pause, int stop) {
  const auto until = Clock::now() + pause;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    pollfd fd = {stop, POLLIN, 0};
    if (poll(&fd, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) > 0) return false;
    if (left.count() <= 0) return true;
  }
}

// What another try may change.
bool ForGood(const absl::Status& refusal, bool new_session) {
  const v1::Reason reason = ReasonOf(refusal);
  if (reason == v1::SESSION_UNKNOWN) return true;
  if (reason == v1::REASON_UNSPECIFIED) return false;  // It was no refusal of the daemon's.
  return new_session ? refusal.code() != absl::StatusCode::kUnavailable
                     : refusal.code() == absl::StatusCode::kPermissionDenied;
}

}  // namespace

absl::StatusOr<Attached> Reattach(const AttachParameters& parameters, const std::string& token,
                                  const ReattachLimits& limits, int stop) {
  const absl::Status stopped = absl::CancelledError("attaching was given up");
  const auto began = Clock::now();
  milliseconds pause = limits.first_pause;
  for (;;) {
    if (!Sleep(pause, stop)) return stopped;
    AttachParameters now = parameters;
    now.timeout = std::clamp(std::chrono::ceil<milliseconds>(limits.give_up - Clock::now()),
                             milliseconds(1), parameters.timeout);
    absl::Status why;
    // While the service manager makes the socket it is another's for a moment: no names for each
    // try.
    auto socket = ConnectAttachSocket(now.path, now.admin, std::min(now.timeout, kConnectTime),
                                      /*names=*/false);
    if (!socket.ok()) {
      why = socket.status();
      pause = Pause(began, milliseconds(5), milliseconds(500));
    } else {
      SetSendTimeout(socket->get(), parameters.timeout);
      auto welcome = Handshake(socket->get(), now, token, stop);
      if (welcome.ok()) return Attached{std::move(*socket), std::move(*welcome)};
      why = welcome.status();
      if (absl::IsCancelled(why)) return stopped;
      if (ForGood(why, token.empty())) return why;
      pause = Pause(began, milliseconds(20), milliseconds(2000));
    }
    if (Clock::now() + pause >= limits.give_up) return why;
  }
}

}  // namespace mrd::internal
