#include "daemon/broker/session_end.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace mrd::broker {
namespace {

constexpr std::chrono::seconds kLong{1};

const char* Sentence(SessionEnd how) {
  switch (how) {
    case SessionEnd::kHangUp:
      return "its attach socket was closed";
    case SessionEnd::kPidfd:
      return "its process has died";
    case SessionEnd::kProtocol:
      return "it broke the attach protocol";
    case SessionEnd::kRevoked:
      return "it was revoked";
    case SessionEnd::kShutdown:
      return "the daemon ends";
    case SessionEnd::kNotBack:
      return "its client did not come back after the daemon's restart";
    case SessionEnd::kDrained:
      return "the deadline of the drain was over";
  }
  return "";
}

// Sessions come and go by the thousand, and most give back first what they had: of those only who
// asks for debug lines hears. At the daemon's own end one line has been said of all.
bool WorthALine(const SessionEnding& end, std::chrono::nanoseconds took) {
  if (took >= kLong) return true;
  if (end.how == SessionEnd::kShutdown) return false;
  if (end.how == SessionEnd::kProtocol || end.how == SessionEnd::kRevoked ||
      end.how == SessionEnd::kDrained) {
    return true;
  }
  return end.leases > 0 || end.held.endpoints > 0;
}

}  // namespace

const char* NameOf(SessionEnd how) {
  switch (how) {
    case SessionEnd::kHangUp:
      return "hang-up";
    case SessionEnd::kPidfd:
      return "pidfd";
    case SessionEnd::kProtocol:
      return "protocol";
    case SessionEnd::kRevoked:
      return "revoked";
    case SessionEnd::kShutdown:
      return "shutdown";
    case SessionEnd::kNotBack:
      return "not-back";
    case SessionEnd::kDrained:
      return "drained";
  }
  return "";
}

void TellEnded(Broker& broker, Session& session) {
  SessionEnding end;
  {
    MutexLock lock(session.mutex);
    end = session.end;
  }
  const auto took = std::chrono::steady_clock::now() - end.since;
  broker.observer().SessionEnded(end.how, took);
  const auto level = WorthALine(end, took) ? spdlog::level::info : spdlog::level::debug;
  if (!log::Wanted(level)) return;
  const double ms = std::chrono::duration<double, std::milli>(took).count();
  broker.session_log().Write(
      level, session.id, session.identity,
      absl::StrFormat("session ended, %s: freed %d regions of %d bytes, %d endpoints, %d buffers "
                      "within %.1f ms (%s)",
                      Sentence(end.how), end.held.regions, end.held.bytes, end.held.endpoints,
                      end.buffers, ms, session.identity.comm),
      log::Fields().Reason(NameOf(end.how)));
}

}  // namespace mrd::broker
