#include "daemon/broker/adoption.h"

#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"

namespace mrd::broker {
namespace {

namespace pb = ledger::pb;
using Clock = std::chrono::steady_clock;
using ledger::Kind;
using ledger::Slots;
using Object = fabric::AdoptedDevice::Object;

constexpr uint64_t kMostCrashedAdoptions = 3;
// Who kills the daemon again and again, however quickly, ends nothing by it; something that goes
// wrong at each start without a signal is to end some time.
constexpr uint64_t kMostUnfinishedAdoptions = 20;
// Regions that were being made when the process ended may have handles so far beyond the highest
// that was written down: those of one call for each thread.
constexpr uint64_t kHandlesBeyond = 1 << 16;

absl::Status Contradicts(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("the ledger contradicts itself: ", what));
}

template <typename Message>
bool Parse(std::string_view bytes, Message* message) {
  return message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
}

void CloseAll(StoredFds& fds, ledger::Store& store) {
  for (const auto& [name, fd] : fds) store.Remove(name);
  fds.clear();
}

absl::StatusOr<std::unique_ptr<Slots>> NewLedger(ledger::Store& store) {
  auto slots = Slots::Create();
  if (!slots.ok()) return slots;
  if (auto added = store.Add(ledger::kFdName, (*slots)->fd()); !added.ok()) return added;
  return slots;
}

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

// The clock goes on over a restart of the process, and not beyond now.
Clock::time_point SteadyTime(uint64_t nanos, Clock::time_point now) {
  const auto limit =
      static_cast<uint64_t>(std::chrono::nanoseconds(now.time_since_epoch()).count());
  return Clock::time_point(std::chrono::nanoseconds(std::min(nanos, limit)));
}

// Counts, while it lives, that this process crashes.
class CrashCount {
 public:
  explicit CrashCount(std::atomic<uint64_t>& counter) {
    counter_ = &counter;
    struct sigaction action = {};
    action.sa_handler = OnCrash;
    action.sa_flags = SA_RESETHAND | SA_NODEFER;
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &action, &before_[i]);
  }
  ~CrashCount() {
    for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
    counter_ = nullptr;
  }
  CrashCount(const CrashCount&) = delete;
  CrashCount& operator=(const CrashCount&) = delete;

 private:
  static constexpr int kSignals[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};

  static void OnCrash(int signal) {
    if (auto* const counter = counter_.exchange(nullptr)) counter->fetch_add(1);
    raise(signal);
  }

  static inline std::atomic<std::atomic<uint64_t>*> counter_ = nullptr;
  struct sigaction before_[std::size(kSignals)];
};

}  // namespace

absl::StatusOr<std::unique_ptr<Slots>> OpenLedger(StoredFds& fds, ledger::Store& store) {
  const auto close_all = [&](absl::string_view why) {
    if (fds.empty()) return;
    spdlog::error(
        "nothing of the run before is taken over: {}; {} descriptors of it are closed, which ends "
        "its sessions, regions and connections",
        std::string(why), fds.size());
    CloseAll(fds, store);
  };
  if (fds.count(ledger::kFdName) != 1) {
    close_all(fds.count(ledger::kFdName) == 0 ? "there is no ledger" : "there are two ledgers");
    return NewLedger(store);
  }
  const auto found = fds.find(ledger::kFdName);
  UniqueFd fd(std::move(found->second));
  fds.erase(found);
  auto slots = Slots::Open(std::move(fd));
  std::string why;
  if (!slots.ok()) {
    why = std::string(slots.status().message());
  } else if ((*slots)->counter(Slots::kCrashedAdoptions) >= kMostCrashedAdoptions) {
    why = absl::StrCat(kMostCrashedAdoptions, " starts in a row have crashed at that");
  } else if ((*slots)->counter(Slots::kUnfinishedAdoptions) >= kMostUnfinishedAdoptions) {
    why = absl::StrCat(kMostUnfinishedAdoptions, " starts in a row have not come to its end");
  }
  if (why.empty()) {
    (*slots)->SetCounter(Slots::kUnfinishedAdoptions,
                         (*slots)->counter(Slots::kUnfinishedAdoptions) + 1);
    return slots;
  }
  slots = absl::UnknownError("");  // Its memory goes before the new one's comes.
  fds.emplace(ledger::kFdName, UniqueFd());
  close_all(why);
  return NewLedger(store);
}

Adoption::Adoption(Broker& broker, ledger::Ledger& ledger, StoredFds fds,
                   std::function<bool(const Identity&)> lives)
    : broker_(broker), ledger_(ledger), fds_(std::move(fds)), lives_(std::move(lives)) {}

absl::Status Adoption::Run() {
  const CrashCount crashes(ledger_.slots().raw(Slots::kCrashedAdoptions));
  const absl::Status adopted = Adopt();
  ledger_.slots().SetCounter(Slots::kCrashedAdoptions, 0);
  ledger_.slots().SetCounter(Slots::kUnfinishedAdoptions, 0);
  return adopted;
}

absl::Status Adoption::Adopt() {
  ReadDevices();
  ReadSessions();
  ReadMemberships();
  ReadCalls();
  absl::Status read = ReadLeases();
  if (read.ok()) read = ReadEndpoints();
  if (!read.ok()) {
    EndAll();
    return read;
  }
  EndUnclaimed();
  // Connections that nobody claims: after their queue pairs.
  CloseAll(fds_, ledger_.store());
  void_.clear();
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
  devices_.clear();  // Those that nothing is left of are closed.
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
  Slots& slots = ledger_.slots();
  slots.ForEach(Kind::kDevice, [&](Slots::Id id, std::string_view bytes) {
    ledger::Record entry(slots, id);
    pb::Device record;
    UniqueFd fd;
    if (Parse(bytes, &record)) fd = TakeFd(record.fd_name());
    if (!fd || !IsUverbs(fd.get(), record.rdev())) {
      spdlog::error(
          "device {}, generation {}: its descriptor is not in the store: what lay there "
          "has ended",
          record.name(), record.generation());
      if (fd) ledger_.store().Remove(record.fd_name());
      void_.push_back(std::move(entry));
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
  Slots& slots = ledger_.slots();
  slots.ForEach(Kind::kSession, [&](Slots::Id id, std::string_view bytes) {
    ledger::Record entry(slots, id);
    pb::Session record;
    if (!Parse(bytes, &record)) return void_.push_back(std::move(entry));
    Identity who = IdentityOf(record);
    if (!lives_(who)) {
      spdlog::info("session {} of uid {}: its process {} has ended meanwhile", record.id(), who.uid,
                   who.pid);
      ++counts_.ended_sessions;
      return void_.push_back(std::move(entry));
    }
    HolderRef holder = broker_.books_.Join(SubjectOf(who));
    if (sessions_.count(record.id()) != 0) {
      spdlog::error("session {} is written down twice: the second is left out", record.id());
      return void_.push_back(std::move(entry));
    }
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
  Slots& slots = ledger_.slots();
  slots.ForEach(Kind::kMembership, [&](Slots::Id id, std::string_view bytes) {
    ledger::Record entry(slots, id);
    pb::Membership record;
    SessionRef session;
    if (Parse(bytes, &record)) session = SessionOf(record.session_id());
    if (!session) return void_.push_back(std::move(entry));
    NamedDomainRef domain = broker_.named_domains_.Adopt(
        record.domain_id(), {record.name(), record.owner(), record.group(), record.mode()});
    if (!domain) return void_.push_back(std::move(entry));
    named_[domain->id] = domain;
    MutexLock lock(session->mutex);
    session->joined[record.name()] = std::move(domain);
    session->memberships[record.name()] = std::move(entry);
  });
}

void Adoption::ReadCalls() {
  Slots& slots = ledger_.slots();
  slots.ForEach(Kind::kCall, [&](Slots::Id id, std::string_view bytes) {
    ledger::Record entry(slots, id);
    pb::Call record;
    if (!Parse(bytes, &record)) return void_.push_back(std::move(entry));
    const uint64_t call = record.id();
    call_records_[call] = std::make_shared<ledger::CallRecord>(std::move(entry));
    calls_[call] = std::move(record);
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

absl::Status Adoption::ReadLeases() {
  struct Found {
    Slots::Id id;
    pb::Lease record;
  };
  Slots& slots = ledger_.slots();
  std::map<uint64_t, Found> found;
  slots.ForEach(Kind::kLease, [&](Slots::Id id, std::string_view bytes) {
    pb::Lease record;
    if (!Parse(bytes, &record)) return void_.emplace_back(slots, id), void();
    auto [place, is_new] = found.try_emplace(record.id());
    if (!is_new) {
      const bool newer = record.revision() > place->second.record.revision();
      void_.emplace_back(slots, newer ? place->second.id : id);
      if (!newer) return;
    }
    place->second = {id, std::move(record)};
  });
  const auto now = Clock::now();
  for (auto& [lease_id, one] : found) {
    ledger::Record entry(slots, one.id);
    const pb::Lease& record = one.record;
    const SessionRef session = SessionOf(record.session_id());
    const bool committed = record.call() == 0 || calls_.count(record.call()) != 0;
    if (!session || !committed || record.keys().empty()) {
      void_.push_back(std::move(entry));
      continue;
    }
    auto lease = std::make_unique<Lease>();
    LeaseView& view = lease->view;
    view.id = record.id();
    view.buffer_id = record.buffer_id();
    view.offset = record.offset();
    view.length = record.length();
    view.addr = record.addr();
    view.access = record.access();
    if (!record.domain().empty()) {
      const auto named = named_.find(record.domain_id());
      view.domain = named != named_.end() ? named->second->name
                                          : std::make_shared<const std::string>(record.domain());
    }
    for (const pb::Key& key : record.keys()) {
      Device* const device = DeviceOf(key.device(), key.generation());
      if (!device) continue;
      const auto facts = device->kernels->Query(key.handle());
      // The handle may be another region's by now: its keys tell.
      if (!facts.ok() || facts->rkey != key.rkey() || facts->lkey != key.lkey() ||
          facts->length != record.length() || facts->iova != record.addr()) {
        continue;
      }
      if (!device->regions.insert(key.handle()).second) {
        return Contradicts(absl::StrCat("region ", key.handle(), " is under two leases"));
      }
      auto domain = ClaimDomain(*device, key.pd(), session, record.domain_id());
      if (!domain) {
        return Contradicts(absl::StrCat("protection domain ", key.pd(), " has two owners"));
      }
      lease->regions.push_back(
          {std::move(domain), nullptr,
           device->kernels->AdoptRegion(key.handle(), key.lkey(), key.rkey())});
      view.keys.push_back({device->info, key.lkey(), key.rkey()});
    }
    if (lease->regions.empty()) {
      void_.push_back(std::move(entry));
      continue;
    }
    lease->written = std::make_unique<WrittenLease>();
    lease->written->record = std::move(entry);
    lease->ttl = std::chrono::nanoseconds(record.ttl());
    if (record.call() != 0) lease->written->call = call_records_[record.call()];
    counts_.regions += lease->regions.size();
    MutexLock lock(session->mutex);
    session->held += lease->booked();
    if (lease->ttl.count() > 0) {
      view.remaining = lease->ttl;
      const uint64_t renewed = std::max(slots.stamp(one.id), slots.stamp(session->record.id()));
      session->expiries.Add(*lease, SteadyTime(renewed, now));
    }
    session->leases.emplace(lease_id, std::move(lease));
    if (record.call() == 0 && !record.request_id().empty()) {
      Remember(session, record.request_id(), record.fingerprint(), {lease_id});
    }
  }
  for (const auto& [id, call] : calls_) {
    const SessionRef session = SessionOf(call.session_id());
    if (!session || call.request_id().empty()) continue;
    MutexLock lock(session->mutex);
    Remember(session, call.request_id(), call.fingerprint(),
             {call.lease_ids().begin(), call.lease_ids().end()});
  }
  call_records_.clear();  // Those whose leases have all ended go.
  return absl::OkStatus();
}

void Adoption::Remember(const SessionRef& session, const std::string& request_id,
                        uint64_t fingerprint, const std::vector<uint64_t>& lease_ids) {
  RequestLog& requests = session->requests;
  bool lives = false;
  for (const uint64_t id : lease_ids) lives |= session->leases.contains(id);
  if (!lives || requests.Find(request_id)) return;
  RequestRecord& request = *requests.Begin(request_id, fingerprint);
  LeaseViews answer;
  for (const uint64_t id : lease_ids) answer.emplace_back().id = id;
  requests.Answer(request, answer);
  for (const LeaseView& view : answer) {
    const auto lease = session->leases.find(view.id);
    if (lease != session->leases.end()) {
      lease->second->request = &request;
    } else {
      requests.LeaseTaken(request, view);
      requests.LeaseEnded(request);
    }
  }
}

absl::Status Adoption::ReadEndpoints() {
  Slots& slots = ledger_.slots();
  absl::Status status;
  slots.ForEach(Kind::kEndpoint, [&](Slots::Id id, std::string_view bytes) {
    ledger::Record entry(slots, id);
    pb::Endpoint record;
    SessionRef session;
    if (Parse(bytes, &record)) session = SessionOf(record.session_id());
    if (!session) return void_.push_back(std::move(entry));
    {
      MutexLock lock(session->mutex);
      if (session->endpoints.count(record.id()) != 0) {
        status = Contradicts(absl::StrCat("endpoint ", record.id(), " is written down twice"));
        return;
      }
    }
    auto endpoint = std::make_shared<Endpoint>();
    endpoint->id = record.id();
    if (record.domain_id() != 0) {
      const auto named = named_.find(record.domain_id());
      if (named != named_.end() && record.listening()) endpoint->named = named->second;
    }
    if (record.listening()) {
      auto listener = broker_.fabric_.Listen(record.local_address(), record.local_port(),
                                             static_cast<int>(record.backlog()));
      if (!listener.ok()) {
        spdlog::error("session {}: endpoint {} does not listen on {} port {} any more: {}",
                      session->id, record.id(), record.local_address(), record.local_port(),
                      std::string(listener.status().message()));
        return void_.push_back(std::move(entry));
      }
      endpoint->state = v1::Endpoint::LISTENING;
      endpoint->info = (*listener)->info();
      endpoint->listener = *std::move(listener);
      endpoint->backlog = record.backlog();
    } else {
      Device* const device = DeviceOf(record.device(), record.generation());
      UniqueFd fd;
      if (device && device->listed_queue_pairs.count(record.qp()) != 0) {
        fd = TakeFd(record.fd_name());
      }
      if (!fd) return void_.push_back(std::move(entry));
      endpoint->stored = ledger::StoredFd(ledger_.store(), record.fd_name());
      if (!device->queue_pairs.insert(record.qp()).second) {
        status = Contradicts(absl::StrCat("queue pair ", record.qp(), " is of two endpoints"));
        return;
      }
      endpoint->adopted = true;
      device->completion_queues.insert(record.cq());
      auto domain = ClaimDomain(*device, record.pd(), session, record.domain_id());
      if (!domain) {
        status = Contradicts(absl::StrCat("protection domain ", record.pd(), " has two owners"));
        return;
      }
      fabric::ConnectionInfo& info = endpoint->info;
      info.device = record.device();
      info.generation = record.generation();
      info.local_address = record.local_address();
      info.local_port = record.local_port();
      info.peer_address = record.peer_address();
      info.peer_port = record.peer_port();
      info.qp_num = record.qp_num();
      endpoint->state = slots.stamp(id) == 0 ? v1::Endpoint::CONNECTED : v1::Endpoint::DISCONNECTED;
      {
        // Before its events are heard, one of which may be waiting.
        MutexLock lock(session->mutex);
        session->endpoints[endpoint->id] = endpoint;
      }
      endpoint->connection = device->kernels->AdoptConnection(
          {record.pd(), record.qp(), record.cq(), fd.release()}, std::move(domain), info,
          WhenPeerLeaves(session, endpoint->id));
    }
    ++counts_.endpoints;
    MutexLock lock(session->mutex);
    endpoint->record = std::move(entry);
    session->held += Amounts{.endpoints = 1};
    session->endpoints[endpoint->id] = std::move(endpoint);
  });
  return status;
}

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
  void_.clear();
  Slots& slots = ledger_.slots();
  for (const Kind kind : {Kind::kDevice, Kind::kSession, Kind::kMembership, Kind::kLease,
                          Kind::kCall, Kind::kEndpoint}) {
    std::vector<Slots::Id> left;
    slots.ForEach(kind, [&left](Slots::Id id, std::string_view) { left.push_back(id); });
    for (const Slots::Id id : left) slots.Erase(id);
  }
}

}  // namespace mrd::broker
