// Starts of the daemon, with nothing and with much to take over.
#include <chrono>
#include <utility>

#include "tests/vm/kills/operations.h"

namespace kills {
namespace {

constexpr std::chrono::seconds kTtl{30};

absl::Status Nothing(Scene&) { return absl::OkStatus(); }

// Of another daemon, which may die under it.
absl::Status Restarts(Scene& scene) { return scene.world.Kill(); }

// Leases of one call and of several, in a named domain, with a ttl, in two generations; a listener
// and a connection.
Operation::Part Much(const std::string& device) {
  return [device](Scene& scene) -> absl::Status {
    for (int i = 0; i < 2; ++i) {
      if (absl::Status added = AddHolder(scene); !added.ok()) return added;
    }
    Holder& holder = scene.holders.front();
    const std::function<absl::Status()> parts[] = {
        [&] { return holder.client->OpenDomain("kills").status(); },
        [&] {
          mrd::RegisterOptions shared = Options(device);
          shared.domain = "kills";
          return Register(holder, shared, 1);
        },
        [&] {
          mrd::RegisterOptions renewed = Options("");
          renewed.ttl = kTtl;
          return Register(holder, renewed, 2);
        },
        [&] { return Listen(scene, holder, device); },
        [&] { return Connect(scene, scene.holders.back(), holder, device); },
        [&] { return scene.world.Kill(); },
        [&] { return holder.client->AddKeys().status(); }};
    for (const auto& part : parts) {
      if (absl::Status done = part(); !done.ok()) return done;
    }
    return absl::OkStatus();
  };
}

Operation::Part RegistersMore(const std::string& device) {
  return [device](Scene& scene) { return Register(scene.holders.back(), Options(device), 2); };
}

}  // namespace

std::vector<Operation> AdoptionOperations(const std::string& device) {
  return {
      {.name = "a start with nothing to take over", .prepare = Nothing, .act = Restarts},
      {.name = "a start that takes over, and a call that it cut short",
       .prepare = Much(device),
       .act = RegistersMore(device),
       .first = "after ibv_reg_mr_iova",
       .first_at = 1},
  };
}

}  // namespace kills
