#include "daemon/broker/adoption.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/crash_count.h"
#include "spdlog/spdlog.h"

namespace mrd::broker {
namespace {

namespace pb = ledger::pb;
using Clock = std::chrono::steady_clock;
using ledger::Kind;
using ledger::Slots;
using Object = fabric::AdoptedDevice::Object;

// Of an opening of a device: a character device, and the one that it was.
bool IsUverbs(int fd, uint64_t rdev) {
  struct stat file;
  return fstat(fd, &file) == 0 && S_ISCHR(file.st_mode) && file.st_rdev == rdev;
}

Identity IdentityOf(const pb::Session& record) {
  Identity who;
  who.pid = record.pid();
  who.uid = record.uid();
  who.gid = record.gid();
  who.groups.assign(record.groups().begin(), record.groups().end());
  who.cgroup = record.cgroup();
  who.comm = record.comm();
  who.start_time = record.start_time();
  who.death = record.death();
  return who;
}

std::chrono::system_clock::time_point SystemTime(int64_t nanos) {
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          std::chrono::nanoseconds(nanos)));
}

}  // namespace

absl::Status Adoption::Contradicts(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the ledger contradicts itself: ", what));
}

Adoption::Adoption(Broker& broker, ledger::Ledger& ledger, StoredFds fds,
                   std::function<bool(const Identity&)> lives)
    : broker_(broker), ledger_(ledger), fds_(std::move(fds)), lives_(std::move(lives)) {}

absl::Status Adoption::Run() {
  Slots& slots = ledger_.slots();
  const CrashCount crashes(slots.raw(Slots::kCrashedAdoptions));
  slots.SetCounter(Slots::kUnfinishedAdoptions, slots.counter(Slots::kUnfinishedAdoptions) + 1);
  const absl::Status adopted = Adopt();
  slots.SetCounter(Slots::kCrashedAdoptions, 0);
  slots.SetCounter(Slots::kUnfinishedAdoptions, 0);
  return adopted;
}

absl::Status Adoption::Adopt() {
  ReadDevices();
  ReadSessions();
  ReadMemberships();
  ReadCalls();
  absl::Status read = ReadLeases();
  if (read.ok()) read = ReadEndpoints();
  if (unreadable_ > 0) {
    spdlog::error("{} records in the ledger cannot be read: what they were of ends", unreadable_);
  }
  if (!read.ok()) {
    EndAll();
    return read;
  }
  EndUnclaimed();
  // Connections that nobody claims: after their queue pairs.
  CloseAll(fds_, ledger_.store());
  {
    MutexLock lock(broker_.mutex_);
    broker_.await_until_ = Clock::now() + kGrace;
    for (const auto& [id, session] : sessions_) {
      broker_.AddLocked(session);
      broker_.awaited_.push_back(session);
      broker_.adopted_.push_back(session);
    }
  }
  for (const auto& [id, session] : sessions_) {
    MutexLock lock(session->mutex);
    Amounts held = session->held;
    held.sessions = 1;
    broker_.books_.BookAnyhow(*session->holder, held);
    broker_.WatchLocked(*session);
  }
  counts_.sessions = sessions_.size();
  std::map<std::string, DeviceRef> unplugged;  // The newest of each name: older ones go with it.
  for (const auto& [generation, device] : devices_) {
    if (!device.kernels->IsThere()) unplugged[generation.first] = device.info;
  }
  devices_.clear();  // Those that nothing is left of are closed.
  for (const auto& [name, device] : unplugged) broker_.device_watch().Remove(*device);
  return absl::OkStatus();
}

UniqueFd Adoption::TakeFd(const std::string& name) {
  if (fds_.count(name) != 1) return UniqueFd();
  const auto found = fds_.find(name);
  UniqueFd fd = std::move(found->second);
  fds_.erase(found);
  return fd;
}

void Adoption::ReadDevices() {
  Each<pb::Device>(Kind::kDevice, [this](ledger::Record& entry, const pb::Device& record) {
    UniqueFd fd = TakeFd(record.fd_name());
    if (!fd || !IsUverbs(fd.get(), record.rdev())) {
      spdlog::error(
          "device {}, generation {}: its descriptor is not in the store: what lay there "
          "has ended",
          record.name(), record.generation());
      if (fd) ledger_.store().Remove(record.fd_name());
      return;
    }
    auto info = std::make_shared<fabric::DeviceInfo>();
    info->name = record.name();
    info->generation = record.generation();
    info->transport = static_cast<v1::Device::Transport>(record.transport());
    info->opened = SystemTime(record.opened());
    info->endpoints = true;
    info->any_address = record.any_address();
    info->max_region_bytes = record.max_region_bytes();
    info->access = record.access();
    ledger_.AdoptDevice(*info, std::move(entry),
                        ledger::StoredFd(ledger_.store(), record.fd_name()));
    Device device;
    device.info = info;
    device.kernels = broker_.fabric_.Adopt(
        *info, {fd.release(), record.driver_id()},
        [&ledger = ledger_, name = info->name, generation = info->generation] {
          ledger.DropDevice(name, generation);
        });
    auto pairs = device.kernels->List(Object::kQueuePair);
    if (!pairs.ok()) {
      spdlog::error("device {}, generation {}: what lay there has ended: {}", info->name,
                    info->generation, std::string(pairs.status().message()));
      return;
    }
    device.listed_queue_pairs.insert(pairs->handles.begin(), pairs->handles.end());
    devices_[{info->name, info->generation}] = std::move(device);
  });
}

void Adoption::ReadSessions() {
  Each<pb::Session>(Kind::kSession, [this](ledger::Record& entry, const pb::Session& record) {
    Identity who = IdentityOf(record);
    if (!lives_(who)) {
      spdlog::info("session {} of uid {}: its process {} has ended meanwhile", record.id(), who.uid,
                   who.pid);
      ++counts_.ended_sessions;
      return;
    }
    if (sessions_.count(record.id()) != 0) {
      spdlog::error("session {} is written down twice: the second is left out", record.id());
      return;
    }
    HolderRef holder = broker_.books_.Join(SubjectOf(who));
    auto session =
        std::make_shared<Session>(record.id(), record.token(), std::move(who), std::move(holder),
                                  record.name(), nullptr, SystemTime(record.attached()));
    session->awaited = true;
    MutexLock lock(session->mutex);
    session->record = std::move(entry);
    sessions_[session->id] = session;
  });
}

void Adoption::ReadMemberships() {
  Each<pb::Membership>(
      Kind::kMembership, [this](ledger::Record& entry, const pb::Membership& record) {
        const SessionRef session = SessionOf(record.session_id());
        if (!session) return;
        NamedDomainRef domain = broker_.named_domains_.Adopt(
            record.domain_id(), {record.name(), record.owner(), record.group(), record.mode()});
        if (!domain) return;
        named_[domain->id] = domain;
        MutexLock lock(session->mutex);
        session->joined[record.name()] = std::move(domain);
        session->memberships[record.name()] = std::move(entry);
      });
}

void Adoption::ReadCalls() {
  Each<pb::Call>(Kind::kCall, [this](ledger::Record& entry, const pb::Call& record) {
    call_records_[record.id()] = std::make_shared<ledger::CallRecord>(ledger_, std::move(entry));
    calls_[record.id()] = record;
  });
}

SessionRef Adoption::SessionOf(uint64_t id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second;
}

Adoption::Device* Adoption::DeviceOf(const std::string& name, uint64_t generation) {
  const auto found = devices_.find({name, generation});
  return found == devices_.end() ? nullptr : &found->second;
}

std::shared_ptr<fabric::Domain> Adoption::ClaimDomain(Device& device, uint32_t pd,
                                                      const SessionRef& session,
                                                      uint64_t domain_id) {
  const std::pair<uint64_t, uint64_t> owner(domain_id == 0 ? session->id : 0, domain_id);
  const auto [place, is_new] = device.domains.try_emplace(pd);
  Device::Domain& domain = place->second;
  if (!is_new) return domain.owner == owner ? domain.domain.domain : nullptr;
  domain = {{device.info, device.kernels->AdoptDomain(pd)}, owner};
  if (domain_id == 0) {
    session->domains.Adopt(domain.domain);
  } else if (const auto named = named_.find(domain_id); named != named_.end()) {
    named->second->domains.Adopt(domain.domain);
  }
  return domain.domain.domain;
}

absl::Status Adoption::ReadEndpoints() {
  absl::Status status;
  Each<pb::Endpoint>(Kind::kEndpoint, [&](ledger::Record& entry, const pb::Endpoint& record) {
    const SessionRef session = SessionOf(record.session_id());
    if (!session) return;
    {
      MutexLock lock(session->mutex);
      if (session->endpoints.count(record.id()) != 0) {
        status = Contradicts(absl::StrCat("endpoint ", record.id(), " is written down twice"));
        return;
      }
    }
    auto endpoint = std::make_shared<Endpoint>();
    endpoint->id = record.id();
    auto adopted = record.listening() ? AdoptListener(*session, *endpoint, record)
                                      : AdoptConnection(session, endpoint, record,
                                                        ledger_.slots().stamp(entry.id()) == 0);
    if (!adopted.ok()) status = adopted.status();
    if (!adopted.ok() || !*adopted) return;
    ++counts_.endpoints;
    MutexLock lock(session->mutex);
    endpoint->record = std::move(entry);
    session->held += Amounts{.endpoints = 1};
    session->endpoints[endpoint->id] = std::move(endpoint);
  });
  return status;
}

absl::StatusOr<bool> Adoption::AdoptListener(const Session& session, Endpoint& endpoint,
                                             const pb::Endpoint& record) {
  if (record.domain_id() != 0) {
    const auto named = named_.find(record.domain_id());
    if (named == named_.end()) {
      // Its connections were to lie there: not in the session's private domains.
      spdlog::error("session {}: endpoint {} does not listen any more: nobody is in domain {}",
                    session.id, record.id(), record.domain());
      return false;
    }
    endpoint.named = named->second;
  }
  auto listener = broker_.fabric_.Listen(record.local_address(), record.local_port(),
                                         static_cast<int>(record.backlog()));
  if (!listener.ok()) {
    spdlog::error("session {}: endpoint {} does not listen on {} port {} any more: {}", session.id,
                  record.id(), record.local_address(), record.local_port(),
                  std::string(listener.status().message()));
    return false;
  }
  endpoint.state = v1::Endpoint::LISTENING;
  endpoint.info = (*listener)->info();
  endpoint.listener = *std::move(listener);
  endpoint.backlog = record.backlog();
  return true;
}

absl::StatusOr<bool> Adoption::AdoptConnection(const SessionRef& session,
                                               const std::shared_ptr<Endpoint>& endpoint,
                                               const pb::Endpoint& record, bool connected) {
  Device* const device = DeviceOf(record.device(), record.generation());
  if (!device || device->listed_queue_pairs.count(record.qp()) == 0) return false;
  UniqueFd fd = TakeFd(record.fd_name());
  if (!fd) return false;
  endpoint->stored = ledger::StoredFd(ledger_.store(), record.fd_name());
  if (!device->queue_pairs.insert(record.qp()).second) {
    return Contradicts(absl::StrCat("queue pair ", record.qp(), " is of two endpoints"));
  }
  device->completion_queues.insert(record.cq());
  auto domain = ClaimDomain(*device, record.pd(), session, record.domain_id());
  if (!domain) {
    return Contradicts(absl::StrCat("protection domain ", record.pd(), " has two owners"));
  }
  endpoint->adopted = true;
  fabric::ConnectionInfo& info = endpoint->info;
  info.device = record.device();
  info.generation = record.generation();
  info.local_address = record.local_address();
  info.local_port = record.local_port();
  info.peer_address = record.peer_address();
  info.peer_port = record.peer_port();
  info.qp_num = record.qp_num();
  endpoint->state = connected ? v1::Endpoint::CONNECTED : v1::Endpoint::DISCONNECTED;
  {
    // Before its events are heard, one of which may be waiting.
    MutexLock lock(session->mutex);
    session->endpoints[endpoint->id] = endpoint;
  }
  endpoint->connection = device->kernels->AdoptConnection(
      {record.pd(), record.qp(), record.cq(), fd.release()}, std::move(domain), info,
      WhenPeerLeaves(broker_, session, endpoint->id));
  return true;
}

}  // namespace mrd::broker
