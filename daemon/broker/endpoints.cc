#include "daemon/broker/endpoints.h"

#include <atomic>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/page.h"
#include "daemon/broker/records.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

absl::Status EndpointUnknown(uint64_t id) {
  return MakeError(v1::ENDPOINT_UNKNOWN, absl::StrCat("no endpoint ", id, " in this session"),
                   {.advice = "It has ended already; ListEndpoints shows those that stand"});
}

EndpointView ViewOf(const Endpoint& endpoint) {
  return {endpoint.id, endpoint.state, endpoint.info, static_cast<bool>(endpoint.record), ""};
}

// The stamp of an endpoint's record.
constexpr uint64_t kPeerHasLeft = 1;

void PeerLeft(Broker& broker, const SessionRef& session, uint64_t id, bool error) {
  // Of an adopted one: the store's is the last descriptor of its rdma_cm id, for whose end the peer
  // waits. The next run of the daemon does not find the endpoint any more.
  ledger::StoredFd stored;
  {
    MutexLock lock(session->mutex);
    const auto found = session->endpoints.find(id);
    if (found == session->endpoints.end()) {
      // It stood for a moment: its session is told when it has it.
      const auto kept = session->being_kept.find(id);
      if (kept != session->being_kept.end()) kept->second.left = error;
      return;
    }
    found->second->state = v1::Endpoint::DISCONNECTED;
    found->second->record.SetStamp(kPeerHasLeft);
    if (found->second->adopted) stored = std::move(found->second->stored);
  }
  if (stored) {
    // The store may block, and this is the fabric's thread.
    broker.registrar().SubmitCleanup(session->ends(),
                                     [stored = std::move(stored)]() mutable { stored = {}; });
  }
  session->link->Send(
      {.kind = v1::AttachEvent::ENDPOINT_ENDED,
       .cause = error ? v1::AttachEvent::CONNECTION_ERROR : v1::AttachEvent::PEER_DISCONNECTED,
       .endpoint_ids = {id},
       .message = error ? "the connection failed" : "the peer disconnected"});
}

// An event of a connection, most likely its end, is taken from the kernel: a next run of the daemon
// that does not find it there finds it here.
void EventWaits(const SessionRef& session, uint64_t id, bool waits) {
  const uint64_t stamp = waits ? kPeerHasLeft : 0;
  MutexLock lock(session->mutex);
  if (const auto found = session->endpoints.find(id); found != session->endpoints.end()) {
    found->second->record.SetStamp(stamp);
    return;
  }
  const auto kept = session->being_kept.find(id);
  if (kept == session->being_kept.end()) return;
  kept->second.event_waits = waits;
  if (kept->second.record) kept->second.record->SetStamp(stamp);
}

}  // namespace

std::function<void(bool error)> WhenPeerLeaves(Broker& broker, const SessionRef& session,
                                               uint64_t id) {
  return [&broker, session, id](bool error) { PeerLeft(broker, session, id, error); };
}

// What an attempt to make a connection has booked. The callback and the fabric hold it: the one
// until the attempt is answered, the other until nothing is left of it.
class Endpoints::Attempt {
 public:
  Attempt(Endpoints& endpoints, Work work, bool connects)
      : endpoints_(endpoints),
        work_(std::make_shared<const Work>(std::move(work))),
        connects_(connects) {}
  ~Attempt() {
    EndConnect();
    if (!established_) endpoints_.Unbook(session());
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;

  const SessionRef& session() const { return work_->session(); }
  // For whoever answers after the attempt has gone.
  const std::shared_ptr<const Work>& work() const { return work_; }

  // The endpoint has what was booked from now on. By the callback, once.
  void Established() {
    EndConnect();
    established_ = true;
  }

 private:
  void EndConnect() {
    if (connects_.exchange(false)) endpoints_.EndConnect(session()->user);
  }

  Endpoints& endpoints_;
  const std::shared_ptr<const Work> work_;
  std::atomic<bool> connects_;
  std::atomic<bool> established_ = false;
};

absl::Status Endpoints::BeginConnect(uint32_t uid) {
  MutexLock lock(mutex_);
  uint64_t& count = connects_[uid];
  if (count >= kMostConnects) {
    return MakeError(
        v1::BUSY,
        absl::StrCat("this user has ", count, " connections being made, of at most ",
                     kMostConnects),
        {.limit_name = "connections being made by the uid",
         .limit = kMostConnects,
         .used = count,
         .advice = "Try again after a pause; those to hosts that do not answer count until the "
                   "kernel gives up, which may be minutes"});
  }
  ++count;
  return absl::OkStatus();
}

void Endpoints::EndConnect(uint32_t uid) {
  MutexLock lock(mutex_);
  const auto count = connects_.find(uid);
  if (--count->second == 0) connects_.erase(count);
}

absl::StatusOr<Work> Endpoints::Book(const SessionRef& session) {
  auto work = Work::Begin(broker_, session);
  if (!work.ok()) return work;
  const Amounts one{.endpoints = 1};
  if (auto booked = broker_.books().Book(*session->holder, one); !booked.ok()) return booked;
  MutexLock lock(session->mutex);
  session->held += one;
  return work;
}

void Endpoints::Unbook(const SessionRef& session) {
  const Amounts one{.endpoints = 1};
  broker_.books().Release(*session->holder, one);
  MutexLock lock(session->mutex);
  session->held -= one;
}

absl::Status Endpoints::Keep(const SessionRef& session, std::shared_ptr<Endpoint>& endpoint) {
  MutexLock lock(session->mutex);
  if (session->ending) return SessionUnknown();
  const fabric::ConnectionInfo& info = endpoint->info;
  if (broker_.device_watch().IsGone(info.device, info.generation)) {
    return DeviceRemoved(info.device);
  }
  const uint64_t id = endpoint->id;
  session->endpoints[id] = std::move(endpoint);
  return absl::OkStatus();
}

void Endpoints::Listen(const SessionRef& session, ListenWish wish, EndpointDone done) {
  if (auto taken = broker_.TakesMore("no new listeners"); !taken.ok()) return done(taken);
  auto named = broker_.JoinedDomain(*session, wish.domain);
  if (!named.ok()) return done(named.status());
  auto booked = Book(session);
  if (!booked.ok()) return done(booked.status());
  auto shared_done = std::make_shared<EndpointDone>(std::move(done));
  auto work = std::make_shared<Work>(*std::move(booked));
  const absl::Status taken = broker_.registrar().Submit(
      session->owner(), 0, [=, this, named = *std::move(named), wish = std::move(wish)] {
        auto listener = broker_.fabric().Listen(wish.address, wish.port, wish.backlog);
        if (!listener.ok()) {
          Unbook(work->session());
          return (*shared_done)(listener.status());
        }
        auto endpoint = std::make_shared<Endpoint>();
        endpoint->id = broker_.NextId();
        endpoint->state = v1::Endpoint::LISTENING;
        endpoint->info = (*listener)->info();
        endpoint->listener = *std::move(listener);
        endpoint->named = named;
        endpoint->backlog = static_cast<uint32_t>(wish.backlog);
        WriteDown(work->session(), *endpoint, named.get());
        const EndpointView view = ViewOf(*endpoint);
        // One that listens on every device is on none: its connections are looked at one by one.
        absl::Status kept = absl::OkStatus();
        if (!view.info.device.empty()) {
          kept = work->session()->terms()->CheckDevice(view.info.device);
        }
        if (kept.ok()) kept = Keep(work->session(), endpoint);
        if (kept.ok()) return (*shared_done)(view);
        endpoint.reset();
        Unbook(work->session());
        (*shared_done)(kept);
      });
  if (taken.ok()) return;
  Unbook(session);
  (*shared_done)(taken);
}

fabric::ConnectionSpec Endpoints::SpecFor(const SessionRef& session,
                                          const std::shared_ptr<Endpoint>& endpoint,
                                          NamedDomainRef named, ConnectionWish wish,
                                          std::shared_ptr<Attempt> attempt) {
  fabric::ConnectionSpec spec;
  spec.held = std::move(attempt);
  spec.private_data = std::move(wish.private_data);
  spec.deadline = wish.deadline;
  spec.domain = [this, session, named = std::move(named)](
                    const std::string& device) -> absl::StatusOr<std::shared_ptr<fabric::Domain>> {
    auto domain = broker_.DomainFor(*session, named, device);
    if (!domain.ok()) return domain.status();
    return domain->domain;
  };
  // A session that ends meanwhile wants nothing any more.
  spec.wanted = [session, wanted = std::move(wish.wanted)] {
    {
      MutexLock lock(session->mutex);
      if (session->ending) return false;
    }
    return !wanted || wanted();
  };
  // By its id: the endpoint holds the connection, which holds this.
  spec.left = WhenPeerLeaves(broker_, session, endpoint->id);
  if (broker_.ledger()) {
    spec.event = [session, id = endpoint->id](bool waits) { EventWaits(session, id, waits); };
  }
  return spec;
}

absl::Status Endpoints::CheckKept(const SessionRef& session, const Endpoint& endpoint) {
  {
    MutexLock lock(session->mutex);
    if (!session->record) return absl::UnavailableError("neither does its session");
  }
  if (!endpoint.connection) return absl::OkStatus();
  for (const DeviceRef& device : broker_.devices().Known()) {
    if (device->name != endpoint.info.device || device->generation != endpoint.info.generation) {
      continue;
    }
    if (broker_.ledger()->KeepDevice(broker_.fabric(), *device)) return absl::OkStatus();
  }
  return absl::UnavailableError("neither does its device's opening");
}

void Endpoints::WriteDown(const SessionRef& session, Endpoint& endpoint, const NamedDomain* named) {
  ledger::Ledger* const ledger = broker_.ledger();
  if (!ledger || session->identity.admin) return;
  ledger::pb::Endpoint record = RecordOf(*session, endpoint, named);
  absl::Status failed = CheckKept(session, endpoint);
  if (failed.ok() && endpoint.connection) {
    auto stored = ledger->Keep(endpoint.connection->handles().fd);
    failed = stored.status();
    if (stored.ok()) {
      record.set_fd_name(stored->name());
      endpoint.stored = *std::move(stored);
    }
  }
  if (failed.ok()) {
    MutexLock lock(session->mutex);
    const auto kept = session->being_kept.find(endpoint.id);
    const bool is_new = kept != session->being_kept.end();
    auto put = ledger->Put(record, is_new && kept->second.event_waits ? kPeerHasLeft : 0);
    failed = put.status();
    if (put.ok()) {
      endpoint.record = *std::move(put);
      if (is_new) kept->second.record = &endpoint.record;
    }
  }
  if (failed.ok()) return;
  endpoint.stored = {};
  broker_.session_log().Write(
      spdlog::level::warn, session->id, session->identity,
      absl::StrCat("endpoint ", endpoint.id, " does not survive the daemon: ", failed.message()));
}

void Endpoints::Established(std::shared_ptr<Attempt> attempt, std::shared_ptr<Endpoint> endpoint,
                            EndpointView view, EndpointDone done) {
  const SessionRef session = attempt->session();
  const uint64_t id = endpoint->id;
  view.survives = static_cast<bool>(endpoint->record);
  const absl::Status refusal = Keep(session, endpoint);
  std::optional<bool> left;
  {
    MutexLock lock(session->mutex);
    const auto kept = session->being_kept.find(id);
    if (kept != session->being_kept.end()) {
      left = kept->second.left;
      session->being_kept.erase(kept);
    }
  }
  if (refusal.ok()) {
    attempt->Established();
    done(std::move(view));
    if (left) WhenPeerLeaves(broker_, session, id)(*left);
    return;
  }
  Refuse(std::move(attempt), std::move(endpoint), refusal, std::move(done));
}

void Endpoints::Refuse(std::shared_ptr<Attempt> attempt, std::shared_ptr<Endpoint> endpoint,
                       absl::Status refusal, EndpointDone done) {
  const Owner owner = attempt->session()->owner();
  broker_.registrar().SubmitCleanup(
      owner, [attempt = std::move(attempt), endpoint = std::move(endpoint), done = std::move(done),
              refusal = std::move(refusal)]() mutable {
        const std::shared_ptr<const Work> work = attempt->work();
        endpoint.reset();
        attempt.reset();
        done(refusal);
      });
}

fabric::EstablishedCallback Endpoints::OnEstablished(std::shared_ptr<Attempt> attempt,
                                                     std::shared_ptr<Endpoint> endpoint,
                                                     NamedDomainRef named, EndpointDone done) {
  return [this, attempt = std::move(attempt), endpoint, named = std::move(named),
          done = std::move(done)](absl::StatusOr<fabric::Established> made) mutable {
    const SessionRef session = attempt->session();
    if (!made.ok()) {
      return Refuse(std::move(attempt), std::move(endpoint), made.status(), std::move(done));
    }
    endpoint->state = v1::Endpoint::CONNECTED;
    endpoint->info = made->connection->info();
    endpoint->connection = std::move(made->connection);
    EndpointView view = ViewOf(*endpoint);
    view.private_data = std::move(made->private_data);
    if (!broker_.ledger()) {
      return Established(std::move(attempt), std::move(endpoint), std::move(view), std::move(done));
    }
    {
      MutexLock lock(session->mutex);
      session->being_kept[endpoint->id] = {};
    }
    // The store may block.
    broker_.registrar().SubmitCleanup(
        session->owner(),
        [this, attempt = std::move(attempt), endpoint = std::move(endpoint),
         named = std::move(named), view = std::move(view), done = std::move(done)]() mutable {
          WriteDown(attempt->session(), *endpoint, named.get());
          named = nullptr;
          Established(std::move(attempt), std::move(endpoint), std::move(view), std::move(done));
        });
  };
}

void Endpoints::Accept(const SessionRef& session, uint64_t listener_id, ConnectionWish wish,
                       EndpointDone done) {
  std::shared_ptr<fabric::Listener> listener;
  NamedDomainRef named;
  bool known;
  {
    MutexLock lock(session->mutex);
    const auto found = session->endpoints.find(listener_id);
    known = found != session->endpoints.end();
    if (known) {
      listener = found->second->listener;
      named = found->second->named;
    }
  }
  if (!known) return done(EndpointUnknown(listener_id));
  if (!listener) {
    return done(MakeError(v1::ENDPOINT_STATE,
                          absl::StrCat("endpoint ", listener_id, " does not listen"),
                          {.advice = "Accept takes an endpoint made by Listen"}));
  }
  auto work = Book(session);
  if (!work.ok()) return done(work.status());
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->id = broker_.NextId();
  auto attempt = std::make_shared<Attempt>(*this, *std::move(work), /*connects=*/false);
  auto spec = SpecFor(session, endpoint, named, std::move(wish), attempt);
  listener->Accept(std::move(spec), OnEstablished(std::move(attempt), std::move(endpoint),
                                                  std::move(named), std::move(done)));
}

void Endpoints::Connect(const SessionRef& session, const std::string& address, uint32_t port,
                        const std::string& source, ConnectionWish wish, EndpointDone done) {
  if (auto taken = broker_.TakesMore("no new connections"); !taken.ok()) return done(taken);
  auto named = broker_.JoinedDomain(*session, wish.domain);
  if (!named.ok()) return done(named.status());
  const uint32_t user = session->user;
  if (auto begun = BeginConnect(user); !begun.ok()) return done(begun);
  auto work = Book(session);
  if (!work.ok()) {
    EndConnect(user);
    return done(work.status());
  }
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->id = broker_.NextId();
  auto attempt = std::make_shared<Attempt>(*this, *std::move(work), /*connects=*/true);
  auto spec = SpecFor(session, endpoint, *named, std::move(wish), attempt);
  broker_.fabric().Connect(
      address, port, source, std::move(spec),
      OnEstablished(std::move(attempt), std::move(endpoint), *std::move(named), std::move(done)));
}

void Endpoints::Disconnect(const SessionRef& session, uint64_t id, Done done) {
  std::shared_ptr<Endpoint> endpoint;
  std::shared_ptr<Work> work;
  absl::Status refusal;
  {
    MutexLock lock(session->mutex);
    const auto found = session->endpoints.find(id);
    if (found != session->endpoints.end()) {
      endpoint = std::move(found->second);
      session->endpoints.erase(found);
      session->being_ended.insert(id);
      work = std::make_shared<Work>(broker_, session);
    } else if (session->being_ended.contains(id)) {
      refusal = MakeError(v1::BUSY, absl::StrCat("endpoint ", id, " is being ended"),
                          {.advice = "Its peer may reach the memory still: ask again"});
    } else {
      refusal = EndpointUnknown(id);
    }
  }
  if (!refusal.ok()) return done(refusal);
  broker_.registrar().SubmitCleanup(session->owner(), [this, work, endpoint = std::move(endpoint),
                                                       done = std::move(done)]() mutable {
    const uint64_t id = endpoint->id;
    endpoint.reset();
    {
      MutexLock lock(work->session()->mutex);
      work->session()->being_ended.erase(id);
    }
    Unbook(work->session());
    done(absl::OkStatus());
  });
}

std::vector<EndpointView> Endpoints::List(const SessionRef& session) {
  std::vector<EndpointView> views;
  MutexLock lock(session->mutex);
  for (const auto& [id, endpoint] : session->endpoints) views.push_back(ViewOf(*endpoint));
  return views;
}

EndpointPage Endpoints::ListAll(const SessionRef& session, uint64_t after, size_t most) {
  PageOf<EndpointView> first(most);
  for (const SessionRef& each : session ? std::vector<SessionRef>{session} : broker_.All()) {
    MutexLock lock(each->mutex);
    size_t taken = 0;
    for (auto it = each->endpoints.upper_bound(after);
         it != each->endpoints.end() && taken <= most && first.Wants(it->first); ++it, ++taken) {
      first.Add(each->id, ViewOf(*it->second));
    }
  }
  EndpointPage page;
  page.endpoints = first.Take(&page.next);
  return page;
}

}  // namespace mrd::broker
