#include "daemon/broker/broker.h"

#include <string.h>
#include <sys/random.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/registration.h"
#include "daemon/broker/teardown.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

constexpr size_t kTokenBytes = 16;
// Refused descriptors beyond the limit are remembered with their reason up to this many; then the
// session ends.
constexpr size_t kRefusalsRemembered = 256;

// Reading devices afresh goes to sysfs: not for each of a client's calls.
constexpr std::chrono::seconds kCatalogFresh{1};

// Whose share of the registrar's threads a look at the devices takes; ids of sessions begin at 1.
constexpr Owner kDaemon{0, static_cast<uid_t>(-1)};

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  // Up to 256 bytes come whole (getrandom(2)); without them no identity is safe.
  if (getrandom(bytes.data(), count, 0) != static_cast<ssize_t>(count)) abort();
  return bytes;
}

// Ids start at a random place, so that those of an earlier daemon are unknown to this one.
uint64_t RandomStart() {
  uint64_t start;
  memcpy(&start, RandomBytes(sizeof start).data(), sizeof start);
  return (start >> 2) | 1;
}

}  // namespace

absl::Status SessionUnknown() {
  return MakeError(v1::SESSION_UNKNOWN, "the session is unknown or has ended",
                   {.advice = "Attach again"});
}

Broker::Broker(fabric::Fabric& fabric, const Limits& limits, size_t threads)
    : fabric_(fabric),
      limits_(WithDefaults(limits)),
      books_(limits_),
      next_id_(RandomStart()),
      registrar_(limits_, threads) {
  Catalog(true);
}

absl::StatusOr<SessionRef> Broker::Attach(Identity identity, std::string name,
                                          std::shared_ptr<Link> link) {
  const absl::Status drained = MakeError(v1::DRAINING, "the daemon is ending",
                                         {.advice = "Attach again when it has started anew"});
  if (draining()) return drained;
  if (auto booked = books_.Book(identity.uid, {.sessions = 1}); !booked.ok()) return booked;
  auto session = std::make_shared<Session>(next_session_id_.fetch_add(1), RandomBytes(kTokenBytes),
                                           std::move(identity), std::move(name), std::move(link));
  MutexLock lock(mutex_);
  if (draining()) {  // Drain has taken its list already.
    books_.Release(session->identity.uid, {.sessions = 1});
    return drained;
  }
  by_token_[session->token] = session;
  by_id_[session->id] = session;
  return session;
}

absl::StatusOr<SessionRef> Broker::Find(const std::string& token) {
  MutexLock lock(mutex_);
  const auto found = by_token_.find(token);
  if (found == by_token_.end()) return SessionUnknown();
  return found->second;
}

SessionRef Broker::SessionById(uint64_t id) {
  MutexLock lock(mutex_);
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::vector<SessionView> Broker::Sessions(uint64_t after_id, size_t most) {
  std::vector<SessionRef> page;
  {
    MutexLock lock(mutex_);
    for (auto it = by_id_.upper_bound(after_id); it != by_id_.end() && page.size() < most; ++it) {
      page.push_back(it->second);
    }
  }
  std::vector<SessionView> views;
  for (const SessionRef& session : page) views.push_back(session->View());
  return views;
}

absl::StatusOr<BookedBuffer> BookedBuffer::Make(Books& books, uid_t uid) {
  if (auto booked = books.Book(uid, {.buffers = 1}); !booked.ok()) return booked;
  BookedBuffer made;
  made.books_ = &books;
  made.uid_ = uid;
  return made;
}

BookedBuffer::~BookedBuffer() {
  if (books_) books_->Release(uid_, {.buffers = 1});
}

SessionView Session::View() {
  MutexLock lock(mutex);
  return {id, identity, name, attached, held, buffers.size(), leases.size()};
}

size_t Broker::session_count() {
  MutexLock lock(mutex_);
  return by_id_.size();
}

void Broker::End(const SessionRef& session) {
  {
    MutexLock lock(mutex_);
    by_token_.erase(session->token);
  }
  Teardown::Start(*this, session);
}

void Broker::Gone(const SessionRef& session) {
  session->link->HangUp();
  books_.Release(session->identity.uid, {.sessions = 1});
  std::function<void()> drained;
  {
    MutexLock lock(mutex_);
    by_id_.erase(session->id);
    if (by_id_.empty()) std::swap(drained, drained_);
  }
  if (drained) drained();
}

void Broker::Drain(std::function<void()> ended) {
  std::vector<SessionRef> all;
  {
    MutexLock lock(mutex_);
    draining_ = true;
    for (const auto& [id, session] : by_id_) all.push_back(session);
    if (!all.empty()) drained_ = std::move(ended);
  }
  if (all.empty()) return ended();
  for (const SessionRef& session : all) {
    session->link->Send({.kind = v1::AttachEvent::DRAINING,
                         .cause = v1::AttachEvent::SHUTDOWN,
                         .message = "the daemon is ending; so does this session"});
    End(session);
  }
}

bool Broker::AddBuffer(Session& session, uint64_t id, UniqueFd fd) {
  const uid_t uid = session.identity.uid;
  BufferSlot slot;
  auto booked = BookedBuffer::Make(books_, uid);
  auto facts = memory::Inspect(fd.get());
  if (!facts.ok()) slot.refusal = facts.status();
  if (!booked.ok()) {
    slot.refusal = booked.status();
  } else {
    slot.booked = *std::move(booked);
  }
  bool orderly = true;
  {
    MutexLock lock(session.mutex);
    const size_t held = session.buffers.size();
    if (!session.ending) {
      orderly =
          id != 0 && !session.buffers.contains(id) && held < limits_.buffers + kRefusalsRemembered;
      if (orderly && held >= limits_.buffers) {
        slot.refusal = MakeError(
            v1::QUOTA_BUFFERS, "the session holds its limit of buffers; this one was not taken",
            {.limit_name = "buffers of the session",
             .limit = limits_.buffers,
             .used = limits_.buffers,
             .advice = "Release buffers (release_after does it at once), then pass it again"});
      }
      if (orderly) {
        if (!slot.refusal.ok()) {
          if (slot.refusal != session.last_refusal) session.last_refusal = slot.refusal;
          slot.refusal = session.last_refusal;
        } else {
          slot.buffer = std::make_shared<memory::Buffer>(std::move(fd), *facts, mappings_);
        }
        session.buffers.emplace(id, std::move(slot));
      }
    }
  }
  // Closing may take long, or for ever.
  if (fd && !disposer_.Close(uid, std::move(fd))) return false;
  return orderly;
}

void Broker::ReleaseBuffers(const SessionRef& session, const std::vector<uint64_t>& ids,
                            Done done) {
  if (ids.size() > limits_.ranges_per_call) {
    return done(MakeError(v1::INVALID_LENGTH, absl::StrCat(ids.size(), " buffers in one call"),
                          {.limit_name = "buffers in one call",
                           .limit = limits_.ranges_per_call,
                           .advice = "Release them in several calls"}));
  }
  if (ids.empty()) return done(absl::OkStatus());
  auto work = Work::Begin(*this, session);
  if (!work.ok()) return done(work.status());
  session->link->Drain();
  std::vector<BufferSlot> gone;
  std::optional<uint64_t> unknown;
  {
    MutexLock lock(session->mutex);
    for (const uint64_t id : ids) {
      if (!session->buffers.contains(id)) unknown = id;
    }
    for (const uint64_t id : ids) {
      const auto found = session->buffers.find(id);
      if (unknown || found == session->buffers.end()) continue;  // Named twice.
      gone.push_back(std::move(found->second));
      session->buffers.erase(found);
    }
  }
  if (unknown) {
    return done(MakeError(v1::BUFFER_UNKNOWN,
                          absl::StrCat("no buffer ", *unknown, " in this session"),
                          {.advice = "Name buffers that were passed and not released"}));
  }
  registrar_.SubmitCleanup(session->owner(), [work = *std::move(work), gone = std::move(gone),
                                              done = std::move(done)]() mutable {
    gone.clear();
    done(absl::OkStatus());
  });
}

std::vector<DeviceRef> Broker::Catalog(bool refresh) {
  {
    MutexLock lock(mutex_);
    if (!refresh) return catalog_;
    while (catalog_reading_) catalog_changed_.Wait(mutex_);
    if (std::chrono::steady_clock::now() - catalog_read_ < kCatalogFresh) return catalog_;
    catalog_reading_ = true;
  }
  std::vector<DeviceRef> fresh;
  for (fabric::DeviceInfo& device : fabric_.Devices()) {
    fresh.push_back(std::make_shared<const fabric::DeviceInfo>(std::move(device)));
  }
  MutexLock lock(mutex_);
  catalog_ = fresh;
  catalog_read_ = std::chrono::steady_clock::now();
  catalog_reading_ = false;
  catalog_changed_.NotifyAll();
  return fresh;
}

void Broker::ListDevices(DevicesDone done) {
  std::vector<DeviceRef> known;
  bool fresh;
  {
    MutexLock lock(mutex_);
    fresh = std::chrono::steady_clock::now() - catalog_read_ < kCatalogFresh;
    if (fresh) {
      known = catalog_;
    } else {
      devices_wanted_.push_back(std::move(done));
      if (devices_wanted_.size() > 1) return;
    }
  }
  if (fresh) return done(known);
  registrar_.SubmitCleanup(kDaemon, [this] {
    const auto devices = Catalog(true);
    std::vector<DevicesDone> wanted;
    {
      MutexLock lock(mutex_);
      wanted.swap(devices_wanted_);
    }
    for (DevicesDone& each : wanted) each(devices);
  });
}

absl::StatusOr<SessionDomain> Broker::DomainFor(Session& session, const std::string& device) {
  const auto find = [&]() MRD_REQUIRES(session.mutex) -> DomainSlot* {
    for (DomainSlot& slot : session.domains) {
      if (slot.device->name == device) return &slot;
    }
    return nullptr;
  };
  {
    MutexLock lock(session.mutex);
    if (session.ending) return SessionUnknown();
    if (const DomainSlot* slot = find()) {
      if (auto made = slot->made.lock()) return SessionDomain{slot->device, std::move(made)};
    }
  }
  SessionDomain fresh;  // Declared before the lock: where it is not used, it ends after it.
  for (const bool refresh : {false, true}) {
    for (const DeviceRef& known : Catalog(refresh)) {
      if (known->name == device) fresh.device = known;
    }
    if (fresh.device) break;
  }
  if (!fresh.device) {
    return MakeError(v1::DEVICE_UNKNOWN, absl::StrCat("no device ", device, " here"),
                     {.advice = "ListDevices (mrctl devices) shows those there are"});
  }
  auto domain = fabric_.CreateDomain(device);
  if (!domain.ok()) return domain.status();
  fresh.domain = *std::move(domain);
  MutexLock lock(session.mutex);
  if (session.ending) return SessionUnknown();
  // Another call of the session may have made one meanwhile: all of a session's regions on a device
  // lie in one domain.
  DomainSlot* slot = find();
  if (!slot) slot = &session.domains.emplace_back();
  if (auto made = slot->made.lock()) return SessionDomain{slot->device, std::move(made)};
  *slot = {fresh.device, fresh.domain, nullptr};
  return fresh;
}

void Broker::Register(const SessionRef& session, RegisterSpec spec, RegisterDone done) {
  Registration::Start(*this, session, std::move(spec), std::move(done));
}

std::vector<SessionRef> Broker::All() {
  std::vector<SessionRef> sessions;
  MutexLock lock(mutex_);
  for (const auto& [id, session] : by_id_) sessions.push_back(session);
  return sessions;
}

std::map<std::string, uint64_t> Broker::RegionsByDevice() {
  std::map<std::string, uint64_t> regions;
  for (const SessionRef& session : All()) {
    MutexLock lock(session->mutex);
    for (const auto& [id, lease] : session->leases) {
      for (const KeyView& key : lease->view.keys) ++regions[key.device->name];
    }
  }
  return regions;
}

Totals Broker::Count() {
  Totals totals{.booked = books_.Total()};
  for (const SessionRef& session : All()) {
    MutexLock lock(session->mutex);
    totals.buffers += session->buffers.size();
  }
  totals.mappings = mappings_.cache.count() + mappings_.window.count();
  return totals;
}

LeasePage Broker::Leases(const SessionRef& session, uint64_t after, size_t most) {
  const std::vector<SessionRef> sessions = session ? std::vector<SessionRef>{session} : All();
  LeasePage page;
  for (const SessionRef& each : sessions) {
    MutexLock lock(each->mutex);
    size_t taken = 0;
    for (auto it = each->leases.upper_bound(after); it != each->leases.end() && taken <= most;
         ++it, ++taken) {
      page.leases.emplace_back(each->id, it->second->view);
    }
  }
  std::sort(page.leases.begin(), page.leases.end(),
            [](const auto& a, const auto& b) { return a.second.id < b.second.id; });
  if (page.leases.size() > most) {
    page.leases.erase(page.leases.begin() + most, page.leases.end());
    page.next = page.leases.back().second.id;
  }
  return page;
}

absl::StatusOr<Work> Work::Begin(Broker& broker, const SessionRef& session) {
  MutexLock lock(session->mutex);
  if (session->ending) return SessionUnknown();
  return Work(broker, session);
}

Work::Work(Broker& broker, const SessionRef& session) : broker_(&broker), session_(session) {
  ++session->pending;
}

Work::~Work() {
  if (!session_) return;
  {
    MutexLock lock(session_->mutex);
    if (--session_->pending > 0 || !session_->ending) return;
  }
  broker_->Gone(session_);
}

}  // namespace mrd::broker
