#include "daemon/broker/removal.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
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
  spdlog::warn(
      "device {} was removed (generation {}): ending {} regions and {} endpoints of {} "
      "sessions",
      device.name, device.generation, lost.regions, lost.endpoints, parts.size());
  for (auto& part : parts) {
    broker.registrar().SubmitCleanup(kDaemonsOwn,
                                     [self, part = std::move(part)] { self->End(*part); });
  }
}

Removal::~Removal() {
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began_);
  if (sessions_ > 0) {
    spdlog::info("device {} (generation {}): all has ended, after {} ms", device_.name,
                 device_.generation, took.count());
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
    if (info.device != device_.name || info.generation != device_.generation) {
      ++it;
      continue;
    }
    part.endpoints.push_back(std::move(it->second));
    it = session.endpoints.erase(it);
  }
}

void Removal::TakeDomains(Session& session, Part& part) const {
  for (auto it = session.domains.begin(); it != session.domains.end();) {
    const fabric::DeviceInfo& info = *it->device;
    if (info.name != device_.name || info.generation != device_.generation) {
      ++it;
      continue;
    }
    part.domains.push_back(std::move(*it));
    it = session.domains.erase(it);
  }
}

void Removal::TakeLeases(Session& session, Part& part) const {
  const auto is_its = [this](const KeyView& key) {
    return key.device->name == device_.name && key.device->generation == device_.generation;
  };
  // All of a session's regions on the device lie in the one domain that it has there.
  const auto slot =
      std::find_if(session.domains.begin(), session.domains.end(), [this](const DomainSlot& each) {
        return each.device->name == device_.name && each.device->generation == device_.generation;
      });
  if (slot == session.domains.end() || !slot->kept) return;
  const fabric::Domain* const domain = slot->kept.get();
  for (auto it = session.leases.begin(); it != session.leases.end();) {
    Lease& lease = *it->second;
    const auto lost =
        std::find_if(lease.regions.begin(), lease.regions.end(),
                     [domain](const HeldRegion& held) { return held.domain.get() == domain; });
    if (lost == lease.regions.end()) {
      ++it;
      continue;
    }
    if (lease.regions.size() == 1) {
      part.whole.push_back(std::move(it->second));
      it = session.leases.erase(it);
      continue;
    }
    auto split = std::make_unique<Lease>();
    split->view = lease.view;
    split->bytes = lease.bytes / lease.regions.size();
    split->regions.push_back(std::move(*lost));
    lease.bytes -= split->bytes;
    lease.regions.erase(lost);
    auto& keys = lease.view.keys;
    keys.erase(std::remove_if(keys.begin(), keys.end(), is_its), keys.end());
    part.split.push_back(std::move(split));
    ++it;
  }
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
  broker_.books_.Release(session->identity.uid, freed);
  {
    MutexLock lock(session->mutex);
    session->held -= freed;
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
  std::vector<std::shared_ptr<RequestRecord>> requests;
  for (auto* list : {&part.whole, &part.split}) {
    for (auto& lease : *list) {
      const Amounts booked = lease->booked();
      const bool ended = EndRegions(*lease, &first_error);
      freed += booked;
      freed -= lease->booked();
      if (lease->request) requests.push_back(lease->request);
      if (!ended) stuck.push_back(std::move(lease));
    }
    list->clear();
  }
  broker_.books_.Release(session->identity.uid, freed);
  {
    MutexLock lock(session->mutex);
    session->held -= freed;
    for (const auto& request : requests) session->requests.LeaseEnded(request);
  }
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
