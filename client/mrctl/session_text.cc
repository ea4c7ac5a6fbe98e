#include "client/mrctl/session_text.h"

#include <algorithm>

namespace mrctl {
namespace {

// In quotes, where it could be taken for what mrctl itself says: "(admin) mrctl". Clients choose
// their names and command lines.
std::string Quoted(const std::string& text, const char* quoted_for) {
  if (text.find_first_of(quoted_for) == text.npos) return text;
  std::string quoted = text;
  std::replace(quoted.begin(), quoted.end(), '"', '\'');
  return '"' + quoted + '"';
}

}  // namespace

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
  who += Quoted(session.name(), "():\"");
  if (!session.name().empty() && !process.empty()) who += ": ";
  return who + (process.starts_with('(') ? Quoted(process, "(") : process);
}

}  // namespace mrctl
