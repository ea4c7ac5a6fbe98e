#include "daemon/broker/removal.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/records.h"
#include "daemon/log.h"
#include "spdlog/spdlog.h"

namespace mrd::broker {
namespace {

// An id takes at most ten bytes of a packet of at most 4,096.
constexpr size_t kIdsAnEvent = 300;

std::vector<uint64_t> Piece(const std::vector<uint64_t>& ids, size_t from) {
  if (from >= ids.size()) return {};
  const size_t count = std::min(kIdsAnEvent, ids.size() - from);
  return {ids.begin() + from, ids.begin() + from + count};
}

}  // namespace

void Removal::Start(Broker& broker, const fabric::DeviceInfo& device, std::function<void()> done) {
  // Ends with the last task that holds it.
  const std::shared_ptr<Removal> self(new Removal(broker, device, std::move(done)));
  std::vector<std::unique_ptr<Part>> parts;
  Amounts lost;
  for (const SessionRef& session : broker.All()) {
    auto part = self->Take(session);
    if (!part) continue;
    lost.endpoints += part->endpoints.size();
    lost.regions += part->whole.size() + part->split.size();
    parts.push_back(std::move(part));
  }
  self->sessions_ = parts.size();
  broker.observer().DeviceChanged(DeviceEvent::kRemoved);
  log::Write(spdlog::level::warn,
             absl::StrCat("device ", device.name, " was removed (generation ", device.generation,
                          "): ending ", lost.regions, " regions and ", lost.endpoints,
                          " endpoints of ", parts.size(), " sessions"),
             log::Fields().Device(device.name));
  for (auto& part : parts) {
    broker.registrar().SubmitCleanup(kDaemonsEnds,
                                     [self, part = std::move(part)] { self->End(*part); });
  }
}

Removal::~Removal() {
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began_);
  if (sessions_ > 0) {
    log::Write(spdlog::level::info,
               absl::StrCat("device ", device_.name, " (generation ", device_.generation,
                            "): all has ended, after ", took.count(), " ms"),
               log::Fields().Device(device_.name));
  }
  done_();
}

std::unique_ptr<Removal::Part> Removal::Take(const SessionRef& session) {
  std::unique_ptr<Part> part;  // Before the lock: an empty one ends after it.
  MutexLock lock(session->mutex);
  if (session->ending) return nullptr;
  part = std::make_unique<Part>(broker_, session);
  TakeEndpoints(*session, *part);
  TakeLeases(*session, *part);
  TakeDomains(*session, *part);
  if (!part->empty()) return part;
  return nullptr;
}

void Removal::TakeEndpoints(Session& session, Part& part) const {
  for (auto it = session.endpoints.begin(); it != session.endpoints.end();) {
    const fabric::ConnectionInfo& info = it->second->info;
    if (info.device != device_.name || info.generation > device_.generation) {
      ++it;
      continue;
    }
    session.being_ended.insert(it->first);
    part.endpoints.push_back(std::move(it->second));
    it = session.endpoints.erase(it);
  }
}

void Removal::TakeDomains(Session& session, Part& part) const {
  part.domains = session.domains.Drop(device_);
  for (const auto& [name, named] : session.joined) {
    for (SessionDomain& domain : named->domains.Drop(device_)) {
      part.domains.push_back(std::move(domain));
    }
  }
}

void Removal::TakeLeases(Session& session, Part& part) const {
  std::vector<uint64_t> whole;
  for (auto& [id, lease] : session.leases) {
    const size_t lost = static_cast<size_t>(
        std::count_if(lease->regions.begin(), lease->regions.end(),
                      [this](const HeldRegion& held) { return IsIts(*held.domain); }));
    if (lost == 0) continue;
    if (lost == lease->regions.size()) {
      whole.push_back(id);
    } else {
      part.split.push_back(Split(*lease));
    }
  }
  for (const uint64_t id : whole) part.whole.push_back(session.TakeLease(id));
}

// What a lease that goes on elsewhere loses here.
std::unique_ptr<Lease> Removal::Split(Lease& lease) const {
  auto split = std::make_unique<Lease>();
  split->view = lease.view;
  const auto lost =
      std::stable_partition(lease.regions.begin(), lease.regions.end(),
                            [this](const HeldRegion& held) { return !IsIts(*held.domain); });
  std::move(lost, lease.regions.end(), std::back_inserter(split->regions));
  lease.regions.erase(lost, lease.regions.end());
  auto& keys = lease.view.keys;
  keys.erase(std::remove_if(keys.begin(), keys.end(),
                            [this](const KeyView& key) {
                              return key.device->name == device_.name &&
                                     key.device->generation <= device_.generation;
                            }),
             keys.end());
  if (ledger::Ledger* const ledger = broker_.ledger()) {
    if (auto written = Rewrite(*ledger, lease); !written.ok()) {
      spdlog::error("lease {} does not survive the daemon: {}", lease.view.id,
                    std::string(written.message()));
    }
  }
  return split;
}

void Removal::End(Part& part) {
  const SessionRef& session = part.work.session();
  std::vector<uint64_t> endpoints, leases;
  for (const auto& endpoint : part.endpoints) endpoints.push_back(endpoint->id);
  for (const auto* list : {&part.whole, &part.split}) {
    for (const auto& lease : *list) leases.push_back(lease->view.id);
  }
  const Amounts freed{.endpoints = part.endpoints.size()};
  part.endpoints.clear();
  broker_.books_.Release(*session->holder, freed);
  {
    MutexLock lock(session->mutex);
    session->held -= freed;
    for (const uint64_t id : endpoints) session->being_ended.erase(id);
  }
  EndLeases(part);
  part.domains.clear();
  if (!leases.empty() || !endpoints.empty()) Tell(part, leases, endpoints);
}

void Removal::EndLeases(Part& part) {
  const SessionRef& session = part.work.session();
  absl::Status first_error;
  Amounts freed;
  std::vector<std::unique_ptr<Lease>> stuck;
  std::vector<const Lease*> taken;
  for (const auto& lease : part.whole) taken.push_back(lease.get());
  uint64_t ended_whole = 0;
  for (auto* list : {&part.whole, &part.split}) {
    for (auto& lease : *list) {
      const Amounts booked = lease->booked();
      const bool ended = EndRegions(*lease, &first_error);
      freed += booked;
      freed -= lease->booked();
      ended_whole += ended && list == &part.whole;
      if (!ended) stuck.push_back(std::move(lease));
    }
  }
  broker_.books_.Release(*session->holder, freed);
  {
    MutexLock lock(session->mutex);
    session->held -= freed;
    for (const Lease* const lease : taken) session->Ended(*lease);
  }
  part.whole.clear();
  part.split.clear();
  broker_.observer_.LeasesEnded(LeaseEnd::kDeviceRemoved, ended_whole);
  broker_.KeepStuck(*session, std::move(stuck), first_error);
}

void Removal::Tell(const Part& part, const std::vector<uint64_t>& leases,
                   const std::vector<uint64_t>& endpoints) const {
  for (size_t from = 0; from < std::max(leases.size(), endpoints.size()); from += kIdsAnEvent) {
    // A piece of the one and one of the other fit the packet only where one is short.
    const auto lease_ids = Piece(leases, from);
    const auto endpoint_ids = Piece(endpoints, from);
    const auto send = [&](std::vector<uint64_t> ended_leases,
                          std::vector<uint64_t> ended_endpoints) {
      part.work.session()->link->Send(
          {.kind = v1::AttachEvent::DEVICE_REMOVED,
           .lease_ids = std::move(ended_leases),
           .endpoint_ids = std::move(ended_endpoints),
           .message = absl::StrCat("device ", device_.name, " was removed"),
           .device = device_.name});
    };
    if (lease_ids.size() + endpoint_ids.size() <= kIdsAnEvent) {
      send(lease_ids, endpoint_ids);
    } else {
      send(lease_ids, {});
      send({}, endpoint_ids);
    }
  }
}

}  // namespace mrd::broker
