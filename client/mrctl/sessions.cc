// mrctl sessions: who is attached, and what each holds.
#include <ctime>
#include <string>

#include "client/mrctl/command.h"
#include "client/mrctl/table.h"
#include "client/mrctl/units.h"

namespace mrctl {

int RunSessions(const GlobalOptions& options) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto sessions = client->ListSessions();
  if (!sessions.ok()) return Fail(options, sessions.status());
  if (options.json) {
    mrd::v1::ListSessionsResponse response;
    response.mutable_sessions()->Add(sessions->begin(), sessions->end());
    return PrintJson(options, response);
  }
  Table table(
      {">SESSION", ">PID", ">UID", "COMMAND", ">REGIONS", ">PINNED", ">ENDP", ">AGE", "NAME"});
  for (const auto& session : *sessions) {
    std::string name = session.name();
    if (session.session_id() == client->session_id()) {
      name += " (this)";
    } else if (session.admin()) {
      name += " (admin)";
    }
    table.Add({std::to_string(session.session_id()),
               session.pid() == 0 ? "hidden" : std::to_string(session.pid()),
               std::to_string(session.uid()), session.comm(), std::to_string(session.regions()),
               FormatSize(session.pinned_bytes()), std::to_string(session.endpoints()),
               FormatAge(time(nullptr) - session.attached_time().seconds()), name});
  }
  return Print(options, table.Text());
}

}  // namespace mrctl
