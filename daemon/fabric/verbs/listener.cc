#include "daemon/fabric/verbs/listener.h"

#include <errno.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/fabric/checks.h"
#include "daemon/fabric/verbs/addresses.h"
#include "daemon/fabric/verbs/connection.h"
#include "daemon/fabric/verbs/errors.h"
#include "mrd/v1/status.h"

namespace mrd::fabric::verbs {
namespace {

absl::Status WaitEnded() {
  return MakeError(v1::WAIT_ENDED, "no peer connected in the time given",
                   {.advice = "Accept again, or wait longer"});
}

absl::Status ListenerEnded() {
  return MakeError(v1::ENDPOINT_UNKNOWN, "the listening endpoint has ended",
                   {.advice = "Listen again"});
}

class VerbsListener final : public Listener {
 public:
  VerbsListener(Cm& cm, ConnectionInfo info, std::shared_ptr<ListenQueue> queue)
      : cm_(cm), info_(std::move(info)), queue_(std::move(queue)) {}

  ~VerbsListener() override {
    cm_.loop().RunSync([this] { queue_->Close(ListenerEnded()); });
  }

  const ConnectionInfo& info() const override { return info_; }

  void Accept(ConnectionSpec spec, EstablishedCallback done) override {
    if (absl::Status status = CheckPrivateData(spec.private_data, kMaxAcceptData); !status.ok()) {
      FailAttempt(spec, done, std::move(status));
      return;
    }
    cm_.loop().Post([queue = queue_, spec = std::move(spec), done = std::move(done)]() mutable {
      queue->Accept(std::move(spec), std::move(done));
    });
  }

 private:
  Cm& cm_;
  const ConnectionInfo info_;
  const std::shared_ptr<ListenQueue> queue_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listen(Cm& cm, const std::string& address, uint32_t port,
                                                 int backlog) {
  auto parsed = ParseAddress(address, port);
  if (!parsed.ok()) return parsed.status();
  const std::string text = EndpointText(*parsed);
  auto id = CmId::Create(cm.api());
  if (!id.ok()) return BindError(text, id.error);
  backlog = std::max(backlog, 1);
  int error = cm.api().BindAddr(id.value->id(), reinterpret_cast<sockaddr*>(&*parsed));
  if (error == 0) error = cm.api().Listen(id.value->id(), backlog);
  if (error != 0) return BindError(text, error);

  ConnectionInfo info = id.value->Info();
  // Bound to one address, the id belongs to the device that has it; to a wildcard, to none.
  std::shared_ptr<Device> device;
  if (id.value->id()->verbs != nullptr) {
    device = cm.devices().Find(id.value->id()->verbs);
    if (device == nullptr) {
      cm.loop().RunSync([&] { cm.Changed(); });  // A new one, maybe.
      return BindError(text, ENODEV);
    }
    info.device = device->name();
    info.generation = device->info().generation;
  }
  auto queue = std::make_shared<ListenQueue>(cm, std::move(id.value), backlog);
  bool started = false;
  cm.loop().RunSync([&] { started = queue->Start(queue); });
  if (!started) return BindError(text, ENOMEM);
  // Given up before the queue could be told.
  if (device != nullptr && device->gone()) {
    cm.loop().RunSync([&] { queue->Close(device->Gone()); });
    return device->Gone();
  }
  return std::make_unique<VerbsListener>(cm, std::move(info), std::move(queue));
}

ListenQueue::ListenQueue(Cm& cm, std::unique_ptr<CmId> id, size_t backlog)
    : cm_(cm), id_(std::move(id)), backlog_(backlog) {}

bool ListenQueue::Start(std::shared_ptr<ListenQueue> self) {
  watch_ = cm_.loop().Watch(id_->fd(), [self] { self->OnReadable(); });
  if (watch_ == 0) return false;
  on_gone_ = cm_.OnGone([self = std::move(self)](const Device& device) { self->OnGone(device); });
  return true;
}

void ListenQueue::Close(const absl::Status& why) {
  if (id_ == nullptr) return;
  closed_ = why;
  cm_.DropGone(on_gone_);
  cm_.loop().Unwatch(watch_);
  // First of all, so that nothing new comes in; what had come in and was not read the kernel
  // rejects. Neither this nor the end of a request waits for a peer: none was answered yet.
  id_.reset();
  while (!requests_.empty()) Take(requests_.begin());
  while (!handshakes_.empty()) GiveUp(Take(handshakes_.begin()), why);
  while (!accepts_.empty()) Fail(Take(accepts_.begin()), why);
}

void ListenQueue::OnGone(const Device& device) {
  if (id_->id()->verbs == device.context()) return Close(device.Gone());
  // It listens on every device: what has come in over this one ends.
  const auto is_on_it = [&device](const Request& request) {
    return request.id->id()->verbs == device.context();
  };
  for (;;) {
    const auto request = std::find_if(requests_.begin(), requests_.end(), is_on_it);
    if (request == requests_.end()) break;
    Take(request);
  }
  for (;;) {  // Who is told may end this listener.
    const auto handshake =
        std::find_if(handshakes_.begin(), handshakes_.end(),
                     [&](const Handshake& each) { return is_on_it(each.request); });
    if (handshake == handshakes_.end()) break;
    GiveUp(Take(handshake), device.Gone());
  }
}

void ListenQueue::Accept(ConnectionSpec spec, EstablishedCallback done) {
  if (id_ == nullptr) {
    FailAttempt(spec, done, closed_);
    return;
  }
  const auto it = accepts_.insert(accepts_.end(), Waiting{std::move(spec), std::move(done), {}});
  it->timer = cm_.loop().At(it->spec.deadline, [this, it] { Fail(Take(it), WaitEnded()); });
  Match();
}

void ListenQueue::OnReadable() {
  // One at a time: a flood of requests does not keep the loop from other endpoints.
  auto event = id_->NextEvent();
  if (!event) return;
  switch (event->type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
      OnRequest(*std::move(event));
      break;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      Close(cm_.Removing(id_->id()->verbs));
      break;
    default:
      break;
  }
}

void ListenQueue::OnRequest(CmEvent event) {
  // On its own channel at once: what happens to it is then told apart from what happens to the
  // listener, and its descriptor is that of one endpoint.
  auto id = CmId::Adopt(cm_.api(), event.id);
  if (!id.ok()) return;  // Rejected, as for want of descriptors.
  const bool known = cm_.devices().Find(id.value->id()->verbs) != nullptr;
  if (!known) cm_.Changed();  // A new one, maybe: the peer that tries again gets in.
  if (!known || requests_.size() >= backlog_) {
    cm_.api().Reject(id.value->id());
    return;
  }
  const auto it = requests_.insert(
      requests_.end(), Request{std::move(id.value), std::move(event.private_data), 0, {}});
  // Whatever comes before it was answered means that the peer is gone.
  it->watch = cm_.loop().Watch(it->id->fd(), [this, it] {
    if (it->id->NextEvent()) Take(it);
  });
  if (it->watch == 0) {
    cm_.api().Reject(it->id->id());
    Take(it);
    return;
  }
  it->timer = cm_.loop().At(std::chrono::steady_clock::now() + kRequestWait, [this, it] {
    cm_.api().Reject(it->id->id());
    Take(it);
  });
  Match();
}

void ListenQueue::Match() {
  while (!accepts_.empty() && !requests_.empty()) {
    Waiting accept = Take(accepts_.begin());
    if (accept.spec.wanted && !accept.spec.wanted()) {
      Fail(std::move(accept), WaitEnded());  // May end this listener.
      continue;
    }
    Answer(std::move(accept), Take(requests_.begin()));
  }
}

void ListenQueue::Answer(Waiting accept, Request request) {
  const std::string peer = EndpointText(request.id->id()->route.addr.dst_storage);
  const auto device = cm_.devices().Find(request.id->id()->verbs);
  absl::Status status = device ? absl::OkStatus() : cm_.Removing(request.id->id()->verbs);
  if (status.ok()) {
    auto domain = accept.spec.domain(device->name());
    status = domain.status();
    if (status.ok()) status = request.id->CreateQp(*device, *std::move(domain));
  }
  if (!status.ok()) {
    cm_.api().Reject(request.id->id());
    request.id.reset();
    Fail(std::move(accept), std::move(status));
    return;
  }
  rdma_conn_param param = {};
  param.private_data = accept.spec.private_data.data();
  param.private_data_len = accept.spec.private_data.size();
  // As many outstanding reads as the peer asked for, or as the device can. Without any,
  // InfiniBand's CM would not let the peer read (cm_init_qp_init_attr in the kernel).
  param.responder_resources = RDMA_MAX_RESP_RES;
  param.initiator_depth = RDMA_MAX_INIT_DEPTH;
  param.rnr_retry_count = 7;  // Without end: the peer may post its receives later.
  if (const int error = cm_.api().Accept(request.id->id(), &param); error != 0) {
    request.id.reset();
    Fail(std::move(accept), ConnectionError(peer, "it could not be accepted", error));
    return;
  }
  const auto it =
      handshakes_.insert(handshakes_.end(), Handshake{std::move(accept), std::move(request)});
  it->request.watch = cm_.loop().Watch(it->request.id->fd(), [this, it] { OnHandshake(it); });
  if (it->request.watch == 0) {
    GiveUp(Take(it), ConnectionError(peer, "the daemon cannot wait for its events", ENOMEM));
    return;
  }
  const auto handshake_end = std::chrono::steady_clock::now() + kHandshakeWait;
  it->accept.timer = cm_.loop().At(
      std::min(it->accept.spec.deadline, handshake_end), [this, it, peer, handshake_end] {
        const bool wait_ended = it->accept.spec.deadline < handshake_end;
        GiveUp(Take(it),
               wait_ended ? WaitEnded() : ConnectionError(peer, "it did not answer", ETIMEDOUT));
      });
}

void ListenQueue::OnHandshake(std::list<Handshake>::iterator it) {
  const auto event = it->request.id->NextEvent();
  if (!event) return;
  Handshake handshake = Take(it);
  std::unique_ptr<CmId> id = std::move(handshake.request.id);
  if (event->type != RDMA_CM_EVENT_ESTABLISHED || event->status != 0) {
    const std::string peer = EndpointText(id->id()->route.addr.dst_storage);
    absl::Status status = event->type == RDMA_CM_EVENT_DEVICE_REMOVAL
                              ? cm_.Removing(id->id()->verbs)
                              : ConnectionError(peer, "it gave up", event->Error());
    cm_.End(std::move(id), std::move(handshake.accept.spec.held),
            [done = std::move(handshake.accept.done), status = std::move(status)]() mutable {
              done(std::move(status));
            });
    return;
  }
  const auto device = cm_.devices().Find(id->id()->verbs);
  if (device == nullptr) {  // Given up since it was answered.
    absl::Status status = cm_.Removing(id->id()->verbs);
    cm_.End(std::move(id), std::move(handshake.accept.spec.held),
            [done = std::move(handshake.accept.done), status = std::move(status)]() mutable {
              done(std::move(status));
            });
    return;
  }
  ConnectionInfo info = id->Info();
  info.device = device->name();
  info.generation = device->info().generation;
  auto connection =
      std::make_unique<VerbsConnection>(cm_, std::move(id), std::move(info), handshake.accept.spec);
  if (!connection->watched()) {
    cm_.End(connection->Release(), std::move(handshake.accept.spec.held),
            [done = std::move(handshake.accept.done),
             peer = connection->info().peer_address]() mutable {
              done(ConnectionError(peer, "the daemon cannot wait for its events", ENOMEM));
            });
    return;
  }
  handshake.accept.done(
      Established{std::move(connection), std::move(handshake.request.private_data)});
}

void ListenQueue::Fail(Waiting accept, absl::Status status) {
  FailAttempt(accept.spec, accept.done, std::move(status));
}

void ListenQueue::GiveUp(Handshake handshake, absl::Status status) {
  cm_.EndHandshake(std::move(handshake.request.id), std::move(handshake.accept.spec.held),
                   [done = std::move(handshake.accept.done), status = std::move(status)]() mutable {
                     done(std::move(status));
                   });
}

ListenQueue::Waiting ListenQueue::Take(std::list<Waiting>::iterator it) {
  cm_.loop().Cancel(it->timer);
  Waiting taken = std::move(*it);
  accepts_.erase(it);
  return taken;
}

ListenQueue::Request ListenQueue::Take(std::list<Request>::iterator it) {
  cm_.loop().Cancel(it->timer);
  cm_.loop().Unwatch(it->watch);
  Request taken = std::move(*it);
  requests_.erase(it);
  return taken;
}

ListenQueue::Handshake ListenQueue::Take(std::list<Handshake>::iterator it) {
  cm_.loop().Cancel(it->accept.timer);
  cm_.loop().Unwatch(it->request.watch);
  Handshake taken = std::move(*it);
  handshakes_.erase(it);
  return taken;
}

}  // namespace mrd::fabric::verbs
