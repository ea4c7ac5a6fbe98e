#include "tests/vm/kills/operations.h"

#include <chrono>
#include <thread>
#include <utility>

namespace kills {
namespace {

constexpr uint64_t kLength = 4096;
constexpr std::chrono::seconds kAccept{20};

}  // namespace

absl::Status AddHolder(Scene& scene, bool renew) {
  auto holder = scene.world.Attach(renew);
  if (!holder.ok()) return holder.status();
  scene.holders.push_back(*std::move(holder));
  return absl::OkStatus();
}

mrd::RegisterOptions Options(const std::string& device) {
  mrd::RegisterOptions options;
  options.preset = mrd::v1::Access::REG_WRITE;
  if (device.empty()) {
    options.all_devices = true;
  } else {
    options.devices = {device};
  }
  return options;
}

absl::Status Register(Holder& holder, const mrd::RegisterOptions& options, uint64_t count) {
  std::vector<mrd::Range> ranges;
  for (uint64_t i = 0; i < count; ++i) {
    ranges.emplace_back(holder.buffers.front(), i * kLength, kLength - i);
  }
  auto regions = holder.client->Register(options, ranges);
  if (!regions.ok()) return regions.status();
  for (mrd::Region& region : *regions) holder.regions.push_back(std::move(region));
  return absl::OkStatus();
}

absl::Status Deregister(Holder& holder) {
  absl::Status status = holder.client->Deregister(holder.regions);
  holder.regions.clear();
  return status;
}

absl::Status Listen(Scene& scene, Holder& holder, const std::string& device) {
  auto listener = holder.client->Listen({.address = scene.world.address_of(device)});
  if (!listener.ok()) return listener.status();
  holder.listeners.push_back(*std::move(listener));
  return absl::OkStatus();
}

absl::Status Connect(Scene& scene, Holder& from, Holder& to, const std::string& device) {
  const mrd::Listener& listener = to.listeners.front();
  absl::Status accepted;
  std::thread accepting([&] {
    auto endpoint = listener.Accept("", kAccept);
    accepted = endpoint.status();
    if (endpoint.ok()) to.endpoints.push_back(*std::move(endpoint));
  });
  auto endpoint = from.client->Connect({.address = scene.world.address_of(device),
                                        .port = static_cast<uint16_t>(listener.info().local_port()),
                                        .wait = kAccept});
  // It waits for nobody then.
  if (!endpoint.ok() && to.client->SessionStatus().ok()) listener.Close().IgnoreError();
  accepting.join();
  if (!endpoint.ok()) return endpoint.status();
  from.endpoints.push_back(*std::move(endpoint));
  return accepted;
}

absl::Status NobodyIsLeft(Scene& scene) {
  constexpr int kAwaitedSeconds = 15;  // One that is awaited has ten to come back.
  return scene.world.Await(
      [&scene]() -> absl::Status {
        auto admin = scene.world.Admin();
        if (!admin.ok()) return admin.status();
        auto sessions = (*admin)->ListSessions();
        if (!sessions.ok()) return sessions.status();
        if (sessions->size() > 1) return absl::InternalError("a session is there still");
        return absl::OkStatus();
      },
      kAwaitedSeconds);
}

Operation::Part Then(Operation::Part first, Operation::Part second) {
  return [first = std::move(first), second = std::move(second)](Scene& scene) {
    absl::Status status = first(scene);
    return status.ok() ? second(scene) : status;
  };
}

}  // namespace kills
