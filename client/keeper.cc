#include "client/keeper.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "client/attach_socket.h"
#include "client/library_thread.h"
#include "client/reattach.h"
#include "client/session.h"
#include "mrd/v1/status.h"

namespace mrd::internal {
namespace {

using std::chrono::milliseconds;

// Callbacks that wait, from which on no further event is read: the daemon is told by that.
constexpr size_t kMostWaiting = 16;
constexpr int kLookAgainMs = 10;

// Without any daemon.
constexpr std::chrono::seconds kLongestAway{60};

constexpr std::chrono::seconds kShortLife{5};

// Before attaching again after so many short lives in a row.
milliseconds FirstPause(int short_lives, milliseconds first, milliseconds most) {
  if (short_lives == 0) return milliseconds(0);
  return std::min<milliseconds>(first * (int64_t{1} << std::min(short_lives - 1, 20)), most);
}

}  // namespace

Keeper::Keeper(Session& session, const v1::AttachWelcome& welcome, UniqueFd stop)
    : session_(session), stop_(std::move(stop)) {
  Installed(welcome);
  thread_ = StartThread([this] { Run(); });
}

Keeper::~Keeper() { thread_.join(); }

void Keeper::Stop() {
  stopping_.store(true);
  eventfd_write(stop_.get(), 1);
}

void Keeper::Run() {
  for (;;) {
    const Gone how = Read();
    if (how == Gone::kStopped || !Recover(how)) return;
  }
}

void Keeper::Installed(const v1::AttachWelcome& welcome) {
  token_ = welcome.token();
  resumes_ = welcome.has_resume_within();
  revoked_ = false;
  installed_ = Clock::now();
}

// Events, until the connection is gone.
Keeper::Gone Keeper::Read() {
  const int socket = session_.connection().socket();
  for (;;) {
    const bool full = session_.callbacks().waiting() >= kMostWaiting;
    const short wanted = full ? POLLRDHUP : POLLIN | POLLRDHUP;
    pollfd fds[] = {{socket, wanted, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(fds, 2, full ? kLookAgainMs : -1) < 0) continue;  // EINTR; nothing else is possible.
    if (fds[1].revents != 0 || stopping_.load()) return Gone::kStopped;
    // What came before a hang-up is read in any case: it may say why.
    if (fds[0].revents == 0) continue;
    v1::DaemonPacket packet;
    switch (ReceivePacket(socket, &packet)) {
      case Received::kNothing:
        break;
      case Received::kPacket:
        if (packet.has_event()) Take(packet.event());
        break;
      case Received::kHangUp:
        return revoked_ ? Gone::kRevoked : Gone::kHungUp;
      case Received::kMalformed:
        return Gone::kNonsense;
    }
  }
}

void Keeper::Take(const v1::AttachEvent& event) {
  const bool draining = event.kind() == v1::AttachEvent::DRAINING;
  // The daemon ends the session: what is not with it yet waits for what comes then.
  if (draining && event.cause() == v1::AttachEvent::SHUTDOWN) session_.state().Disconnect();
  if (draining && event.cause() != v1::AttachEvent::SHUTDOWN) session_.state().SetDrained();
  // Of leases: these. Of none: of the session, which the operator does not want back.
  revoked_ |= event.kind() == v1::AttachEvent::REVOKED && event.lease_ids().empty() &&
              event.endpoint_ids().empty();
  session_.regions().OnEvent(event);
  session_.Tell(event);
}

absl::Status Keeper::LostError(const std::string& how) const {
  return MakeError(v1::SESSION_UNKNOWN,
                   "the session has ended: the daemon at " + session_.parameters().path + " " + how,
                   {.advice = "Its regions and keys are gone. Attach anew and register again, if "
                              "the daemon has ended when it is back; its log says why the session "
                              "ended."});
}

bool Keeper::Lose(const absl::Status& why) {
  session_.connection().HangUp();
  if (stopping_.load()) return false;
  session_.state().End(why);
  session_.TellLost(why);
  return false;
}

// False: the session has ended.
bool Keeper::Recover(Gone how) {
  const auto now = Clock::now();
  short_lives_ = now - installed_ < kShortLife ? short_lives_ + 1 : 0;
  absl::Status why = LostError(
      how == Gone::kNonsense ? "sent a packet that is not of the attach protocol" : "hung up");
  const bool restores = session_.on_loss() == OnLoss::kRestore;
  // A daemon that talks nonsense keeps no session of ours.
  if (how != Gone::kHungUp || (!resumes_ && !restores)) return Lose(why);

  session_.state().Disconnect();
  const auto give_up = now + kLongestAway;
  if (!resumes_) return Restore(std::nullopt, give_up);

  // How long it is kept, the daemon knows: it may be restarted several times meanwhile.
  auto again =
      Reattach(session_.parameters(), token_,
               {.give_up = give_up,
                .first_pause = FirstPause(short_lives_, milliseconds(2), milliseconds(250))},
               stop_.get());
  if (absl::IsCancelled(again.status())) return false;
  if (again.ok() && again->welcome.resumed()) {
    const v1::AttachWelcome welcome = again->welcome;
    session_.connection().Install(session_.state().NextEpoch(), std::move(*again));
    Installed(welcome);
    session_.Connected(welcome);
    return true;
  }
  if (!again.ok()) {
    why = ReasonOf(again.status()) == v1::SESSION_UNKNOWN
              ? LostError("was restarted and does not know it any more")
              : WithPrefix("the session has ended: it was lost, and: ", again.status());
  }
  if (!restores) return Lose(why);
  // One that does not know of tokens has given a new session.
  return Restore(again.ok() ? std::optional(std::move(*again)) : std::nullopt, give_up);
}

// Makes another session of it; `attached` where there is a new one already.
bool Keeper::Restore(std::optional<Attached> attached, Clock::time_point give_up) {
  for (;; ++short_lives_, attached.reset(), give_up = Clock::now() + kLongestAway) {
    if (!attached) {
      auto again =
          Reattach(session_.parameters(), /*token=*/"",
                   {.give_up = give_up,
                    .first_pause = FirstPause(short_lives_, milliseconds(100), milliseconds(5000))},
                   stop_.get());
      if (absl::IsCancelled(again.status())) return false;
      if (!again.ok()) {
        return Lose(WithPrefix("the session was lost, and there is no other: ", again.status()));
      }
      attached = std::move(*again);
    }
    const v1::AttachWelcome welcome = attached->welcome;
    const uint64_t epoch = session_.state().NextEpoch();
    session_.connection().Install(epoch, std::move(*attached));
    Installed(welcome);
    Rekeyed rekeyed{.why = Rekeyed::Why::kRestored, .session_id = welcome.session_id()};
    const bool restored = session_.Restore(welcome, epoch, &rekeyed);
    if (stopping_.load()) return false;
    if (!restored) continue;
    session_.Connected(welcome);
    session_.TellRekeyed(std::move(rekeyed));
    return true;
  }
}

}  // namespace mrd::internal
