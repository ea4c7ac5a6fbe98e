// mrctl revoke: ends what clients hold. They are told the reason.
#include <algorithm>
#include <chrono>
#include <thread>

#include "client/mrctl/admin.h"
#include "client/mrctl/units.h"

namespace mrctl {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr std::chrono::milliseconds kLookEvery{20};

// Whether the session holds nothing any more, within a while.
absl::StatusOr<bool> WaitGone(const mrd::Client& client, uint64_t session_id) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const auto sessions = client.ListSessions();
    if (!sessions.ok()) return sessions.status();
    const bool there = std::any_of(sessions->begin(), sessions->end(), [&](const auto& each) {
      return each.session_id() == session_id;
    });
    if (!there) return true;
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(kLookEvery);
  }
}

}  // namespace

int RunRevokeLeases(const GlobalOptions& options, const RevokeCommand& command) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  auto revoked = client->RevokeLeases(command.ids, command.reason);
  if (!revoked.ok()) return Fail(options, revoked.status());
  if (options.json) {
    mrd::v1::RevokeLeasesResponse response;
    response.set_revoked(*revoked);
    return PrintJson(options, response);
  }
  return Print(options, std::to_string(*revoked) +
                            (*revoked == 1 ? " lease revoked: no device reaches its region\n"
                                           : " leases revoked: no device reaches their regions\n"));
}

int RunRevokeSession(const GlobalOptions& options, const RevokeCommand& command) {
  auto client = Attach(options);
  if (!client.ok()) return Fail(options, client.status());
  const uint64_t id = command.ids.front();
  absl::Status revoked = client->RevokeSession(id, command.reason);
  if (!revoked.ok()) return Fail(options, revoked);
  const auto gone = WaitGone(*client, id);
  if (!gone.ok()) return Fail(options, gone.status());
  if (!*gone) {
    Note(options, "session " + std::to_string(id) +
                      " is over, and what it held is still being freed: mrctl sessions shows it "
                      "until it is");
  }
  if (options.json) return PrintJson(options, mrd::v1::RevokeSessionResponse());
  return Print(options, "session " + std::to_string(id) + " revoked" +
                            (*gone ? ": it holds nothing any more\n" : "\n"));
}

}  // namespace mrctl
