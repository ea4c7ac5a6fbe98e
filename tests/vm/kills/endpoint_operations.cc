// Connections between two clients of the one daemon: both of their ends are its own.
#include <utility>

#include "tests/vm/kills/operations.h"

namespace kills {
namespace {

Operation::Part TwoOn(const std::string& device) {
  return [device](Scene& scene) {
    for (int i = 0; i < 2; ++i) {
      if (absl::Status added = AddHolder(scene); !added.ok()) return added;
    }
    return Register(scene.holders.front(), Options(device), 1);
  };
}

Operation::Part Listens(const std::string& device) {
  return [device](Scene& scene) { return Listen(scene, scene.holders.front(), device); };
}

absl::Status Closes(Scene& scene) { return scene.holders.front().listeners.front().Close(); }

Operation::Part Connects(const std::string& device) {
  return [device](Scene& scene) {
    return Connect(scene, scene.holders.back(), scene.holders.front(), device);
  };
}

absl::Status Disconnects(Scene& scene) {
  return scene.holders.back().endpoints.front().Disconnect();
}

// The other end is told, whichever daemon it is that hears of it.
absl::Status PeerHasNoticed(Scene& scene) {
  return scene.world.Await([&scene]() -> absl::Status {
    auto state = scene.holders.front().endpoints.front().State();
    if (!state.ok()) return state.status();
    if (*state == mrd::v1::Endpoint::DISCONNECTED) return absl::OkStatus();
    return absl::InternalError("the peer of a connection that has ended did not notice");
  });
}

absl::Status Restarts(Scene& scene) { return scene.world.Kill(); }

Operation::Part RegistersMore(const std::string& device) {
  return [device](Scene& scene) { return Register(scene.holders.front(), Options(device), 2); };
}

}  // namespace

std::vector<Operation> EndpointOperations(const std::string& device) {
  const Operation::Part listening = Then(TwoOn(device), Listens(device));
  const Operation::Part connected = Then(listening, Connects(device));
  return {
      {.name = "a client listens",
       .prepare = TwoOn(device),
       .act = Listens(device),
       .may_fail = true},
      {.name = "a listener is closed", .prepare = listening, .act = Closes},
      {.name = "a client connects to another that accepts",
       .prepare = listening,
       .act = Connects(device),
       .may_fail = true},
      {.name = "the first connection of a daemon's life",
       .prepare = Then(listening, Restarts),
       .act = Connects(device),
       .may_fail = true},
      {.name = "a connection is ended",
       .prepare = connected,
       .act = Disconnects,
       .settle = PeerHasNoticed},
      {.name = "a connection of before a restart is ended",
       .prepare = Then(connected, Restarts),
       .act = Disconnects,
       .settle = PeerHasNoticed},
      {.name = "regions are registered for a connection of before a restart",
       .prepare = Then(connected, Restarts),
       .act = RegistersMore(device)},
  };
}

}  // namespace kills
