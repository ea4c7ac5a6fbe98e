#include "daemon/broker/generations.h"

#include <functional>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/endpoints.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

// By name, and then from the newest on.
using Key = std::pair<std::string, uint64_t>;
struct NewestFirst {
  bool operator()(const Key& a, const Key& b) const {
    return a.first != b.first ? a.first < b.first : a.second > b.second;
  }
};

// What a session has, by generation.
struct Part {
  DeviceRef device;
  uint64_t regions = 0;
  uint64_t endpoints = 0;
  std::set<const fabric::Domain*> domains;
};

std::map<Key, Part, NewestFirst> PartsOf(Session& session) {
  std::map<Key, Part, NewestFirst> parts;
  MutexLock lock(session.mutex);
  for (const auto& [id, lease] : session.leases) {
    for (const KeyView& key : lease->view.keys) {
      Part& part = parts[{key.device->name, key.device->generation}];
      part.device = key.device;
      ++part.regions;
    }
    for (const HeldRegion& held : lease->regions) {
      parts[{held.domain->device(), held.domain->generation()}].domains.insert(held.domain.get());
    }
  }
  for (const auto& [id, endpoint] : session.endpoints) {
    const fabric::ConnectionInfo& info = endpoint->info;
    if (info.generation != 0) ++parts[{info.device, info.generation}].endpoints;
  }
  return parts;
}

}  // namespace

std::vector<GenerationView> Generations(Broker& broker, const std::vector<SessionRef>& sessions) {
  std::map<Key, GenerationView, NewestFirst> views;
  std::map<Key, std::set<const fabric::Domain*>, NewestFirst> domains;
  for (const DeviceRef& device : broker.devices().Read()) {
    views[{device->name, device->generation}] = {.device = device, .newest = true};
  }
  for (const SessionRef& session : sessions) {
    for (const auto& [key, part] : PartsOf(*session)) {
      GenerationView& view = views[key];
      if (!view.device) view.device = part.device;
      ++view.sessions;
      view.regions += part.regions;
      view.endpoints += part.endpoints;
      domains[key].insert(part.domains.begin(), part.domains.end());
    }
  }
  std::vector<GenerationView> list;
  for (auto& [key, view] : views) {
    if (!view.device) {  // Endpoints alone.
      auto device = std::make_shared<fabric::DeviceInfo>();
      device->name = key.first;
      device->generation = key.second;
      view.device = std::move(device);
    }
    view.domains = domains[key].size();
    list.push_back(std::move(view));
  }
  return list;
}

absl::StatusOr<uint64_t> LeaveGeneration(Broker& broker, const std::string& device,
                                         uint64_t generation, const std::string& reason) {
  const Key key(device, generation);
  bool known = false;
  for (const GenerationView& view : Generations(broker, broker.All())) {
    known |= view.device->name == device && view.device->generation == generation;
  }
  if (!known) {
    return MakeError(v1::GENERATION_UNKNOWN,
                     absl::StrCat("device ", device, " has no generation ", generation),
                     {.advice = "ListGenerations (mrctl generations) shows those there are"});
  }
  uint64_t asked = 0;
  for (const SessionRef& session : broker.All()) {
    if (PartsOf(*session).count(key) == 0) continue;
    ++asked;
    session->link->Send(
        {.kind = v1::AttachEvent::LEAVE_GENERATION,
         .message =
             absl::StrCat("the operator wants generation ", generation, " of device ", device,
                          " to be left: make connections anew", reason.empty() ? "" : ": ", reason),
         .device = device,
         .generation = generation});
  }
  return asked;
}

}  // namespace mrd::broker
