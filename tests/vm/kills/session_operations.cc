// The beginning and the ends of sessions, on all devices.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/vm/kills/operations.h"

namespace kills {
namespace {

// A program that attaches tries again.
absl::Status Attaches(Scene& scene) {
  return scene.world.Await([&scene] { return AddHolder(scene); });
}

absl::Status HoldsMuch(Scene& scene) {
  if (absl::Status added = AddHolder(scene); !added.ok()) return added;
  Holder& holder = scene.holders.front();
  if (auto opened = holder.client->OpenDomain("kills"); !opened.ok()) return opened.status();
  mrd::RegisterOptions shared = Options("");
  shared.domain = "kills";
  if (absl::Status made = Register(holder, shared, 1); !made.ok()) return made;
  return Register(holder, Options(""), 1);
}

absl::Status Detaches(Scene& scene) {
  scene.holders.front().client->Detach();
  scene.holders.clear();
  return absl::OkStatus();
}

absl::Status RevokesSession(Scene& scene) {
  auto admin = scene.world.Admin();
  if (!admin.ok()) return admin.status();
  return (*admin)->RevokeSession(scene.holders.front().client->session_id(), "a test");
}

// In a process of its own.
Operation::Part VictimHoldsMuch(const std::string& device) {
  return [device](Scene& scene) -> absl::Status {
    auto victim = probe::Speaker::Start({"client_probe"});
    if (!victim.ok()) return victim.status();
    scene.victim.emplace(*std::move(victim));
    for (const std::string& line : {std::string("attach victim"), std::string("buffer b 65536"),
                                    std::string("open_domain kills"),
                                    std::string("register r b 0 4096 write all domain=kills"),
                                    absl::StrCat("listen ", scene.world.address_of(device), " r"),
                                    std::string("register s:2 b 8192 4096 write all ttl=30000")}) {
      auto answer = scene.victim->Say(line);
      if (!answer.ok()) return answer.status();
      if (answer->rfind("ok", 0) != 0) {
        return absl::InternalError(absl::StrCat(line, ": ", *answer));
      }
    }
    return absl::OkStatus();
  };
}

absl::Status VictimDies(Scene& scene) {
  scene.victim->Kill();
  return absl::OkStatus();
}

}  // namespace

std::vector<Operation> SessionOperations(const std::string& device) {
  return {
      {.name = "a client attaches", .act = Attaches},
      {.name = "a client detaches that holds much",
       .prepare = HoldsMuch,
       .act = Detaches,
       .settle = NobodyIsLeft},
      {.name = "a client dies that holds much",
       .prepare = VictimHoldsMuch(device),
       .act = VictimDies,
       .settle = NobodyIsLeft},
      {.name = "a session is revoked",
       .prepare = HoldsMuch,
       .act = RevokesSession,
       .may_fail = true,
       .may_end = true},
  };
}

}  // namespace kills
