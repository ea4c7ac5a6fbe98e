// Adoption's end of what nobody claims.
#include <map>
#include <utility>

#include "daemon/broker/adoption.h"
#include "spdlog/spdlog.h"

namespace mrd::broker {
namespace {

using ledger::Kind;
using ledger::Slots;
using Object = fabric::AdoptedDevice::Object;

// Regions that were being made when the process ended may have handles so far beyond the highest
// that was written down: those of one call for each thread.
constexpr uint64_t kHandlesBeyond = 1 << 16;

}  // namespace

void Adoption::EndUnclaimed() {
  for (auto& [generation, device] : devices_) EndUnclaimed(device);
}

void Adoption::EndUnclaimed(Device& device) {
  std::set<uint32_t> domains;
  for (const auto& [handle, domain] : device.domains) domains.insert(handle);
  // What is used before what it uses.
  const std::pair<Object, const std::set<uint32_t>*> kinds[] = {
      {Object::kQueuePair, &device.queue_pairs},
      {Object::kRegion, &device.regions},
      {Object::kCompletionQueue, &device.completion_queues},
      {Object::kDomain, &domains}};
  const auto end = [&](Object object, uint32_t handle) {
    const absl::Status ended = device.kernels->End(object, handle);
    if (!ended.ok()) spdlog::error("{}", std::string(ended.message()));
    counts_.ended_objects += ended.ok();
    return ended.ok();
  };
  for (const auto& [object, claimed] : kinds) {
    bool all = false;
    for (bool progress = true; progress && !all;) {
      progress = false;
      const auto list = device.kernels->List(object);
      if (!list.ok()) break;
      all = list->all;
      for (const uint32_t handle : list->handles) {
        if (claimed->count(handle) == 0) progress |= end(object, handle);
      }
    }
    if (all || object != Object::kRegion) continue;
    // More than the kernel lists at once, and those that it lists are claimed.
    const uint64_t most = ledger_.slots().counter(Slots::kMostHandle) + kHandlesBeyond;
    for (uint64_t handle = 0; handle <= most; ++handle) {
      const auto number = static_cast<uint32_t>(handle);
      if (claimed->count(number) == 0 && device.kernels->Query(number).ok()) end(object, number);
    }
  }
}

void Adoption::EndAll() {
  std::vector<std::map<uint64_t, std::shared_ptr<Endpoint>>> ended;
  // All that lies in the domains first, whoever was said to have it; then those end with whoever
  // has adopted them.
  for (auto& [generation, device] : devices_) {
    device.regions.clear();
    device.queue_pairs.clear();
    device.completion_queues.clear();
  }
  EndUnclaimed();
  for (const auto& [id, session] : sessions_) {
    // A connection holds its session, to tell it when the peer leaves.
    std::map<uint64_t, std::shared_ptr<Endpoint>> endpoints;
    MutexLock lock(session->mutex);
    endpoints.swap(session->endpoints);
    ended.push_back(std::move(endpoints));
  }
  ended.clear();
  sessions_.clear();
  named_.clear();
  calls_.clear();
  call_records_.clear();
  for (auto& [generation, device] : devices_) device.domains.clear();
  EndUnclaimed();
  CloseAll(fds_, ledger_.store());
  devices_.clear();
  Slots& slots = ledger_.slots();
  for (const Kind kind : {Kind::kDevice, Kind::kSession, Kind::kMembership, Kind::kLease,
                          Kind::kCall, Kind::kEndpoint}) {
    std::vector<Slots::Id> left;
    slots.ForEach(kind, [&left](Slots::Id id, std::string_view) { left.push_back(id); });
    for (const Slots::Id id : left) slots.Erase(id);
  }
}

}  // namespace mrd::broker
