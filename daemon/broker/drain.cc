#include "daemon/broker/drain.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/broker.h"
#include "daemon/log.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

std::string Because(const std::string& reason) {
  return reason.empty() ? "" : absl::StrCat(": ", reason);
}

std::string ByWhen(const std::optional<std::chrono::nanoseconds>& deadline) {
  if (!deadline) return "";
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(*deadline).count();
  return absl::StrCat("; what is left in ", seconds, " s is ended");
}

log::Fields Who(const Session& admin) {
  return log::Fields()
      .Add("admin_uid", std::to_string(admin.identity.uid))
      .Add("admin_pid", admin.identity.pid == 0 ? "hidden" : std::to_string(admin.identity.pid));
}

}  // namespace

void DrainSwitch::TurnOn(std::string reason, std::optional<Clock::time_point> deadline) {
  MutexLock lock(mutex_);
  const auto since = view_ ? view_->since : std::chrono::system_clock::now();
  view_ = {since, std::move(reason), deadline};
  told_overdue_ = false;
  on_.store(true, std::memory_order_release);
}

bool DrainSwitch::TurnOff() {
  MutexLock lock(mutex_);
  on_.store(false, std::memory_order_release);
  return std::exchange(view_, std::nullopt).has_value();
}

std::optional<DrainSwitch::View> DrainSwitch::view() const {
  MutexLock lock(mutex_);
  return view_;
}

absl::Status DrainSwitch::Check(const char* what) const {
  if (!on()) return absl::OkStatus();
  const auto drained = view();
  if (!drained) return absl::OkStatus();
  return MakeError(
      v1::DRAINING,
      absl::StrCat("the operator has drained the daemon", Because(drained->reason), "; ", what),
      {.advice = "Use another host, or try again when the operator has taken it back"});
}

bool DrainSwitch::TakeOverdue(Clock::time_point now) {
  if (!on()) return false;
  MutexLock lock(mutex_);
  if (!view_ || !view_->deadline || now < *view_->deadline) return false;
  return !std::exchange(told_overdue_, true);
}

void Broker::StartDrain(const Session& admin, const std::string& reason,
                        std::optional<std::chrono::nanoseconds> deadline) {
  // Before the list is taken: who is not in it has not been let in.
  std::optional<DrainSwitch::Clock::time_point> until;
  if (deadline) {
    until = DrainSwitch::Clock::now() +
            std::chrono::duration_cast<DrainSwitch::Clock::duration>(*deadline);
  }
  drain_.TurnOn(reason, until);
  size_t told = 0;
  const Event event{
      .kind = v1::AttachEvent::DRAINING,
      .message = absl::StrCat("the operator drains the daemon", Because(reason), ByWhen(deadline))};
  for (const SessionRef& session : All()) {
    if (session->identity.admin) continue;
    session->link->Send(event);
    ++told;
  }
  log::Write(spdlog::level::info,
             absl::StrCat("drained by an admin", Because(reason),
                          "; nothing new is let in, sessions that go on: ", told, ByWhen(deadline)),
             Who(admin));
}

void Broker::StopDrain(const Session& admin) {
  if (!drain_.TurnOff()) return;
  log::Write(spdlog::level::info, "not drained any more, by an admin: sessions are let in again",
             Who(admin));
}

void Broker::EndOverdue(DrainSwitch::Clock::time_point now) {
  if (!drain_.TakeOverdue(now)) return;
  std::vector<SessionRef> left;
  for (const SessionRef& session : All()) {
    if (!session->identity.admin) left.push_back(session);
  }
  log::Write(spdlog::level::info,
             absl::StrCat("the deadline of the drain is over: ending ", left.size(), " sessions"),
             log::Fields().Reason("drained"));
  for (const SessionRef& session : left) {
    session->link->Send({.kind = v1::AttachEvent::DRAINING,
                         .cause = v1::AttachEvent::SHUTDOWN,
                         .message = "the operator's deadline is over; this session ends"});
    End(session, SessionEnd::kDrained);
  }
}

DrainView Broker::DrainNow() {
  DrainView now{.drained = drain_.view()};
  if (!now.drained) return now;
  MutexLock lock(mutex_);
  now.sessions_left = by_id_.size() - admins_.size();
  return now;
}

}  // namespace mrd::broker
