// mrctl sessions: who is attached, and what each holds.
#include <unistd.h>

#include <ctime>
#include <string>

#include "client/mrctl/command.h"
#include "client/mrctl/session_text.h"
#include "client/mrctl/table.h"
#include "client/mrctl/terminal.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

using mrd::v1::Session;

std::string Number(uint64_t value) { return std::to_string(value); }

std::string Narrow(const std::vector<Session>& sessions, uint64_t own, int64_t now) {
  Table table({">SESSION", ">PID", ">UID", ">REGIONS", ">PINNED", ">UNCL", ">AGE", "WHO"});
  for (const Session& session : sessions) {
    table.Add({Number(session.session_id()), PidOf(session), Number(session.uid()),
               Number(session.regions()), FormatSize(session.pinned_bytes()),
               Number(session.unclaimed_buffers()),
               FormatShortAge(now - session.attached_time().seconds()), WhoOf(session, own)});
  }
  return table.Text(WidthOf(STDOUT_FILENO));
}

// Everything, in lines as long as they are.
std::string Wide(const std::vector<Session>& sessions, uint64_t own) {
  Table table({">SESSION", ">PID", ">UID", ">GID", ">REGIONS", ">PINNED", ">BUFFERS", ">UNCL",
               ">ENDP", ">LEASES", ">CALLS", ">RENEWS", ">LAPSES", "SINCE", "END BY", "RULE",
               "CGROUP", "COMM", "WHO"});
  for (const Session& session : sessions) {
    table.Add(
        {Number(session.session_id()), PidOf(session), Number(session.uid()), Number(session.gid()),
         Number(session.regions()), FormatSize(session.pinned_bytes()), Number(session.buffers()),
         Number(session.unclaimed_buffers()), Number(session.endpoints()), Number(session.leases()),
         Number(session.calls()), Number(session.renewals()), Number(session.lapses()),
         FormatTime(session.attached_time().seconds()), session.death(),
         session.rule().empty() ? "-" : session.rule(),
         session.cgroup().empty() ? "-" : session.cgroup(), session.comm(), WhoOf(session, own)});
  }
  return table.Text();
}

}  // namespace

int RunSessions(const GlobalOptions& options, bool wide) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto sessions = client->ListSessions();
  if (!sessions.ok()) return Fail(options, sessions.status());
  if (options.json) {
    mrd::v1::ListSessionsResponse response;
    response.mutable_sessions()->Add(sessions->begin(), sessions->end());
    return PrintJson(options, response);
  }
  return Print(options, wide ? Wide(*sessions, client->session_id())
                             : Narrow(*sessions, client->session_id(), time(nullptr)));
}

}  // namespace mrctl
