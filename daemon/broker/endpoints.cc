#include "daemon/broker/endpoints.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "mrd/v1/status.h"

namespace mrd::broker {
namespace {

absl::Status EndpointUnknown(uint64_t id) {
  return MakeError(v1::ENDPOINT_UNKNOWN, absl::StrCat("no endpoint ", id, " in this session"),
                   {.advice = "It has ended already; ListEndpoints shows those that stand"});
}

EndpointView ViewOf(const Endpoint& endpoint) {
  return {endpoint.id, endpoint.state, endpoint.info, ""};
}

}  // namespace

absl::StatusOr<Work> Endpoints::Book(const SessionRef& session) {
  auto work = Work::Begin(broker_, session);
  if (!work.ok()) return work;
  const Amounts one{.endpoints = 1};
  if (auto booked = broker_.books().Book(session->identity.uid, one); !booked.ok()) return booked;
  MutexLock lock(session->mutex);
  session->held += one;
  return work;
}

void Endpoints::Unbook(const SessionRef& session) {
  const Amounts one{.endpoints = 1};
  broker_.books().Release(session->identity.uid, one);
  MutexLock lock(session->mutex);
  session->held -= one;
}

bool Endpoints::Keep(const SessionRef& session, std::shared_ptr<Endpoint>& endpoint) {
  MutexLock lock(session->mutex);
  if (session->ending) return false;
  const uint64_t id = endpoint->id;
  session->endpoints[id] = std::move(endpoint);
  return true;
}

void Endpoints::Listen(const SessionRef& session, std::string address, uint32_t port, int backlog,
                       EndpointDone done) {
  auto booked = Book(session);
  if (!booked.ok()) return done(booked.status());
  auto shared_done = std::make_shared<EndpointDone>(std::move(done));
  auto work = std::make_shared<Work>(*std::move(booked));
  const absl::Status taken =
      broker_.registrar().Submit(session->owner(), 0, [=, this, address = std::move(address)] {
        auto listener = broker_.fabric().Listen(address, port, backlog);
        if (!listener.ok()) {
          Unbook(work->session());
          return (*shared_done)(listener.status());
        }
        auto endpoint = std::make_shared<Endpoint>();
        endpoint->id = broker_.NextId();
        endpoint->state = v1::Endpoint::LISTENING;
        endpoint->info = (*listener)->info();
        endpoint->listener = *std::move(listener);
        const EndpointView view = ViewOf(*endpoint);
        if (Keep(work->session(), endpoint)) return (*shared_done)(view);
        endpoint.reset();
        Unbook(work->session());
        (*shared_done)(SessionUnknown());
      });
  if (taken.ok()) return;
  Unbook(session);
  (*shared_done)(taken);
}

void Endpoints::PeerLeft(const SessionRef& session, uint64_t id, bool error) {
  {
    MutexLock lock(session->mutex);
    const auto found = session->endpoints.find(id);
    if (found == session->endpoints.end()) return;
    found->second->state = v1::Endpoint::DISCONNECTED;
  }
  session->link->Send(
      {.kind = v1::AttachEvent::ENDPOINT_ENDED,
       .cause = error ? v1::AttachEvent::CONNECTION_ERROR : v1::AttachEvent::PEER_DISCONNECTED,
       .endpoint_ids = {id},
       .message = error ? "the connection failed" : "the peer disconnected"});
}

fabric::ConnectionSpec Endpoints::SpecFor(const SessionRef& session,
                                          const std::shared_ptr<Endpoint>& endpoint,
                                          ConnectionWish wish) {
  fabric::ConnectionSpec spec;
  spec.private_data = std::move(wish.private_data);
  spec.deadline = wish.deadline;
  spec.domain = [this, session](
                    const std::string& device) -> absl::StatusOr<std::shared_ptr<fabric::Domain>> {
    auto domain = broker_.DomainFor(*session, device);
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
  spec.left = [this, session, id = endpoint->id](bool error) { PeerLeft(session, id, error); };
  return spec;
}

fabric::EstablishedCallback Endpoints::OnEstablished(std::shared_ptr<Work> work,
                                                     std::shared_ptr<Endpoint> endpoint,
                                                     EndpointDone done) {
  return [this, work, endpoint,
          done = std::move(done)](absl::StatusOr<fabric::Established> made) mutable {
    const SessionRef& session = work->session();
    absl::Status refusal = made.status();
    if (made.ok()) {
      endpoint->state = v1::Endpoint::CONNECTED;
      endpoint->info = made->connection->info();
      endpoint->connection = std::move(made->connection);
      EndpointView view = ViewOf(*endpoint);
      view.private_data = std::move(made->private_data);
      if (Keep(session, endpoint)) return done(std::move(view));
      refusal = SessionUnknown();
    }
    // A connection's end may block, and waits for this very thread: elsewhere.
    broker_.registrar().SubmitCleanup(
        session->owner(),
        [this, work, endpoint = std::move(endpoint), done = std::move(done), refusal]() mutable {
          endpoint.reset();
          Unbook(work->session());
          done(refusal);
        });
  };
}

void Endpoints::Accept(const SessionRef& session, uint64_t listener_id, ConnectionWish wish,
                       EndpointDone done) {
  std::shared_ptr<fabric::Listener> listener;
  bool known;
  {
    MutexLock lock(session->mutex);
    const auto found = session->endpoints.find(listener_id);
    known = found != session->endpoints.end();
    if (known) listener = found->second->listener;
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
  listener->Accept(
      SpecFor(session, endpoint, std::move(wish)),
      OnEstablished(std::make_shared<Work>(*std::move(work)), endpoint, std::move(done)));
}

void Endpoints::Connect(const SessionRef& session, const std::string& address, uint32_t port,
                        const std::string& source, ConnectionWish wish, EndpointDone done) {
  auto work = Book(session);
  if (!work.ok()) return done(work.status());
  auto endpoint = std::make_shared<Endpoint>();
  endpoint->id = broker_.NextId();
  broker_.fabric().Connect(
      address, port, source, SpecFor(session, endpoint, std::move(wish)),
      OnEstablished(std::make_shared<Work>(*std::move(work)), endpoint, std::move(done)));
}

void Endpoints::Disconnect(const SessionRef& session, uint64_t id, Done done) {
  std::shared_ptr<Endpoint> endpoint;
  std::shared_ptr<Work> work;
  {
    MutexLock lock(session->mutex);
    const auto found = session->endpoints.find(id);
    if (found != session->endpoints.end()) {
      endpoint = std::move(found->second);
      session->endpoints.erase(found);
      work = std::make_shared<Work>(broker_, session);
    }
  }
  if (!endpoint) return done(EndpointUnknown(id));
  broker_.registrar().SubmitCleanup(session->owner(), [this, work, endpoint = std::move(endpoint),
                                                       done = std::move(done)]() mutable {
    endpoint.reset();
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

}  // namespace mrd::broker
