#include "client/mrctl/session_text.h"

namespace mrctl {

std::string PidOf(const mrd::v1::Session& session) {
  return session.pid() == 0 ? "hidden" : std::to_string(session.pid());
}

std::string WhoOf(const mrd::v1::Session& session, uint64_t own) {
  std::string who;
  if (session.ending()) {
    who = "(ending) ";
  } else if (session.session_id() == own) {
    who = "(this) ";
  } else if (session.admin()) {
    who = "(admin) ";
  }
  const std::string& process =
      session.command_line().empty() ? session.comm() : session.command_line();
  who += session.name();
  if (!session.name().empty() && !process.empty()) who += ": ";
  return who + process;
}

}  // namespace mrctl
