#include "tests/fake/fake_cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace mrd::fake {
namespace {

// enum ib_cm_rej_reason of the kernel.
constexpr int kInvalidService = 8;
constexpr int kConsumerDefined = 28;
// InfiniBand's CM pads private data to these.
constexpr size_t kRequestData = 56;
constexpr size_t kReplyData = 196;

sockaddr_storage Copy(const sockaddr* address) {
  sockaddr_storage copy = {};
  memcpy(&copy, address,
         address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return copy;
}

uint16_t& PortField(sockaddr_storage& address) {
  return address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                       : reinterpret_cast<sockaddr_in&>(address).sin_port;
}
uint16_t Port(sockaddr_storage address) { return ntohs(PortField(address)); }

std::string Text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* raw = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  if (address.ss_family == AF_INET6) {
    raw = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  }
  inet_ntop(address.ss_family, raw, text, sizeof text);
  return text;
}

bool IsAny(const sockaddr_storage& address) {
  const std::string text = Text(address);
  return text == "0.0.0.0" || text == "::";
}

std::string Padded(const rdma_conn_param& param, size_t size) {
  std::string data(static_cast<const char*>(param.private_data), param.private_data_len);
  data.resize(std::max(size, data.size()));
  return data;
}

}  // namespace

struct FakeCm::Channel : rdma_event_channel {
  std::deque<Event*> events;
  int ids = 0;
};

struct FakeCm::Event : rdma_cm_event {
  Id* owner = nullptr;  // Whose acknowledgement it needs.
  std::string data;
};

struct FakeCm::Id : rdma_cm_id {
  enum State { kIdle, kBound, kListening, kResolved, kRequesting, kRequested, kConnected, kEnded };
  State state = kIdle;
  Id* peer = nullptr;
  int unacknowledged = 0;
  bool established_held = false;
};

FakeCm::Id& FakeCm::Of(rdma_cm_id* id) { return *static_cast<Id*>(id); }
FakeCm::Channel& FakeCm::Of(rdma_event_channel* channel) { return *static_cast<Channel*>(channel); }

FakeCm::~FakeCm() = default;

rdma_event_channel* FakeCm::CreateChannel() {
  auto* channel = new Channel();
  channel->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
  ++live_.channels;
  return channel;
}

void FakeCm::DestroyChannel(rdma_event_channel* channel) {
  MutexLock lock(mutex_);
  if (Of(channel).ids != 0) violations_.push_back("a channel was destroyed before its ids");
  close(channel->fd);
  delete &Of(channel);
  --live_.channels;
}

rdma_cm_id* FakeCm::CreateId(rdma_event_channel* channel) {
  MutexLock lock(mutex_);
  auto* id = new Id();
  id->channel = channel;
  id->ps = RDMA_PS_TCP;
  id->qp_type = IBV_QPT_RC;
  id->port_num = 1;
  ++Of(channel).ids;
  ++live_.ids;
  ids_.insert(id);
  return id;
}

int FakeCm::DestroyId(rdma_cm_id* raw) {
  MutexLock lock(mutex_);
  Id& id = Of(raw);
  WaitForHandshake(id);
  if (id.unacknowledged != 0) {
    violations_.push_back("an id was destroyed with an event not acknowledged: it would hang");
  }
  if (id.qp != nullptr) violations_.push_back("an id was destroyed before its queue pair");
  if (id.peer != nullptr) {
    if (id.state == Id::kConnected) {
      Push(*id.peer, RDMA_CM_EVENT_DISCONNECTED, 0);
    } else {
      Push(*id.peer, RDMA_CM_EVENT_REJECTED, kConsumerDefined);
    }
    id.peer->state = Id::kEnded;
    id.peer->peer = nullptr;
    id.peer->established_held = false;
    handshake_ended_.NotifyAll();
  }
  Forget(id);
  return 0;
}

// The end of an id: its events that nobody has read go with it, and the ids that they would have
// told of.
void FakeCm::Forget(Id& id) {
  Channel& channel = Of(id.channel);
  for (size_t i = 0; i < channel.events.size();) {
    Event* const event = channel.events[i];
    if (event->owner != &id) {
      ++i;
      continue;
    }
    channel.events.erase(channel.events.begin() + i);
    eventfd_t one;
    eventfd_read(channel.fd, &one);
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      Id& request = Of(event->id);
      if (request.peer != nullptr) {
        Push(*request.peer, RDMA_CM_EVENT_REJECTED, kConsumerDefined);
        request.peer->peer = nullptr;
      }
      Forget(request);
    }
    delete event;
  }
  --channel.ids;
  --live_.ids;
  ids_.erase(&id);
  delete &id;
}

int FakeCm::MigrateId(rdma_cm_id* raw, rdma_event_channel* to) {
  MutexLock lock(mutex_);
  Id& id = Of(raw);
  if (id.unacknowledged != 0) {
    violations_.push_back("an id was moved with an event not acknowledged: it would hang");
  }
  Channel& from = Of(id.channel);
  for (size_t i = 0; i < from.events.size();) {
    if (from.events[i]->owner != &id) {
      ++i;
      continue;
    }
    Of(to).events.push_back(from.events[i]);
    eventfd_write(to->fd, 1);
    from.events.erase(from.events.begin() + i);
    eventfd_t one;
    eventfd_read(from.fd, &one);
  }
  --from.ids;
  ++Of(to).ids;
  id.channel = to;
  return 0;
}

FakeDevice* FakeCm::DeviceAt(const sockaddr_storage& address) const {
  for (FakeDevice* device : devices_.Present()) {
    if (device->spec().endpoints && device->spec().active &&
        device->spec().address == Text(address)) {
      return device;
    }
  }
  return nullptr;
}

uint16_t FakeCm::FreePort() { return ++last_port_; }

int FakeCm::BindAddr(rdma_cm_id* raw, const sockaddr* address) {
  MutexLock lock(mutex_);
  Id& id = Of(raw);
  sockaddr_storage bound = Copy(address);
  FakeDevice* const device = DeviceAt(bound);
  if (device == nullptr && !IsAny(bound)) return EADDRNOTAVAIL;
  const auto in_use = [&] {
    return std::any_of(ids_.begin(), ids_.end(), [&](const Id* other) {
      return (other->state == Id::kBound || other->state == Id::kListening) &&
             Port(other->route.addr.src_storage) == Port(bound);
    });
  };
  if (Port(bound) != 0 && in_use()) return EADDRINUSE;
  while (Port(bound) == 0 || in_use()) PortField(bound) = htons(FreePort());
  id.route.addr.src_storage = bound;
  if (device != nullptr) id.verbs = device->context();
  id.state = Id::kBound;
  return 0;
}

int FakeCm::Listen(rdma_cm_id* raw) {
  MutexLock lock(mutex_);
  Of(raw).state = Id::kListening;
  return 0;
}

int FakeCm::ResolveAddr(rdma_cm_id* raw, const sockaddr* source, const sockaddr* destination) {
  MutexLock lock(mutex_);
  Id& id = Of(raw);
  id.route.addr.dst_storage = Copy(destination);
  FakeDevice* device = DeviceAt(id.route.addr.dst_storage);
  if (source != nullptr) {
    id.route.addr.src_storage = Copy(source);
    FakeDevice* const from = DeviceAt(id.route.addr.src_storage);
    if (from == nullptr) return EADDRNOTAVAIL;
    if (device != nullptr) device = from;
  }
  if (device == nullptr) {
    Push(id, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH);
    return 0;
  }
  auto& from = reinterpret_cast<sockaddr_in&>(id.route.addr.src_storage);
  from.sin_family = AF_INET;
  from.sin_port = htons(FreePort());
  inet_pton(AF_INET, device->spec().address.c_str(), &from.sin_addr);
  id.verbs = device->context();
  id.state = Id::kResolved;
  Push(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0);
  return 0;
}

int FakeCm::ResolveRoute(rdma_cm_id* raw) {
  MutexLock lock(mutex_);
  if (Of(raw).state != Id::kResolved) return EINVAL;
  Push(Of(raw), RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
  return 0;
}

int FakeCm::Connect(rdma_cm_id* raw, const rdma_conn_param& param) {
  MutexLock lock(mutex_);
  Id& id = Of(raw);
  if (id.state != Id::kResolved) return EINVAL;
  Id* listener = nullptr;
  for (Id* other : ids_) {
    const sockaddr_storage& bound = other->route.addr.src_storage;
    if (other->state == Id::kListening && Port(bound) == Port(id.route.addr.dst_storage) &&
        (IsAny(bound) || Text(bound) == Text(id.route.addr.dst_storage))) {
      listener = other;
    }
  }
  if (listener == nullptr) {
    Push(id, RDMA_CM_EVENT_REJECTED, kInvalidService);
    return 0;
  }
  auto* request = new Id();
  request->channel = listener->channel;
  request->ps = RDMA_PS_TCP;
  request->qp_type = IBV_QPT_RC;
  request->port_num = 1;
  request->route.addr.src_storage = id.route.addr.dst_storage;
  request->route.addr.dst_storage = id.route.addr.src_storage;
  request->verbs = DeviceAt(id.route.addr.dst_storage)->context();
  request->state = Id::kRequested;
  request->peer = &id;
  ++Of(listener->channel).ids;
  ++live_.ids;
  ids_.insert(request);
  id.peer = request;
  id.state = Id::kRequesting;
  Push(*listener, RDMA_CM_EVENT_CONNECT_REQUEST, 0, Padded(param, kRequestData), request);
  return 0;
}

int FakeCm::Accept(rdma_cm_id* raw, const rdma_conn_param& param) {
  MutexLock lock(mutex_);
  Id& id = Of(raw);
  if (id.state != Id::kRequested || id.peer == nullptr || id.qp == nullptr) return EINVAL;
  id.state = id.peer->state = Id::kConnected;
  Push(*id.peer, RDMA_CM_EVENT_ESTABLISHED, 0, Padded(param, kReplyData));
  id.established_held = hold_established_;
  if (!hold_established_) Push(id, RDMA_CM_EVENT_ESTABLISHED, 0);
  return 0;
}

int FakeCm::Reject(rdma_cm_id* raw) {
  MutexLock lock(mutex_);
  Id& id = Of(raw);
  if (id.state != Id::kRequested) return EINVAL;
  if (id.peer != nullptr) {
    Push(*id.peer, RDMA_CM_EVENT_REJECTED, kConsumerDefined);
    id.peer->state = Id::kEnded;
    id.peer->peer = nullptr;
    id.peer = nullptr;
  }
  id.state = Id::kEnded;
  return 0;
}

int FakeCm::Disconnect(rdma_cm_id* raw) {
  MutexLock lock(mutex_);
  Id& id = Of(raw);
  WaitForHandshake(id);
  if (id.state != Id::kConnected) return EINVAL;
  id.state = Id::kEnded;
  Push(id, RDMA_CM_EVENT_DISCONNECTED, 0);
  if (Id* const peer = id.peer) {
    Push(*peer, RDMA_CM_EVENT_DISCONNECTED, 0);
    peer->state = Id::kEnded;
    peer->peer = nullptr;
    id.peer = nullptr;
  }
  return 0;
}

void FakeCm::Push(Id& id, rdma_cm_event_type type, int status, const std::string& data,
                  Id* new_id) {
  auto* event = new Event();
  event->owner = &id;
  event->id = new_id != nullptr ? new_id : &id;
  event->listen_id = new_id != nullptr ? &id : nullptr;
  event->event = type;
  event->status = status;
  event->data = data;
  event->param.conn.private_data = event->data.empty() ? nullptr : event->data.data();
  event->param.conn.private_data_len = event->data.size();
  event->param.conn.responder_resources = 1;
  event->param.conn.initiator_depth = 1;
  Of(id.channel).events.push_back(event);
  eventfd_write(id.channel->fd, 1);
}

rdma_cm_event* FakeCm::GetEvent(rdma_event_channel* raw) {
  MutexLock lock(mutex_);
  Channel& channel = Of(raw);
  if (channel.events.empty()) return nullptr;
  Event* const event = channel.events.front();
  channel.events.pop_front();
  eventfd_t one;
  eventfd_read(channel.fd, &one);
  ++event->owner->unacknowledged;
  ++live_.events;
  return event;
}

void FakeCm::AckEvent(rdma_cm_event* raw) {
  MutexLock lock(mutex_);
  auto* event = static_cast<Event*>(raw);
  --event->owner->unacknowledged;
  --live_.events;
  delete event;
}

void FakeCm::ForEach(const std::function<void(rdma_cm_id* id)>& inject) {
  std::vector<rdma_cm_id*> ids;
  {
    MutexLock lock(mutex_);
    ids.assign(ids_.begin(), ids_.end());
  }
  for (rdma_cm_id* id : ids) inject(id);
}

void FakeCm::Inject(rdma_cm_id* id, rdma_cm_event_type type, int status) {
  MutexLock lock(mutex_);
  Push(Of(id), type, status);
}

void FakeCm::TellRemoval(const FakeDevice& device) {
  MutexLock lock(mutex_);
  for (Id* id : ids_) {
    if (id->verbs == nullptr || &FakeDevice::Of(id->verbs) != &device) continue;
    Push(*id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
    id->established_held = false;
  }
  handshake_ended_.NotifyAll();
}

void FakeCm::Violation(const std::string& what) {
  MutexLock lock(mutex_);
  violations_.push_back(what);
}

void FakeCm::HoldEstablished(bool hold) {
  MutexLock lock(mutex_);
  hold_established_ = hold;
  if (hold) return;
  for (Id* id : ids_) {
    if (std::exchange(id->established_held, false)) Push(*id, RDMA_CM_EVENT_ESTABLISHED, 0);
  }
  handshake_ended_.NotifyAll();
}

void FakeCm::WaitForHandshake(Id& id) {
  if (!id.established_held || id.verbs->device->node_type != IBV_NODE_RNIC) return;
  const auto until = std::chrono::steady_clock::now() + kKernelWait;
  while (id.established_held && handshake_ended_.WaitUntil(mutex_, until)) {
  }
}

std::vector<std::string> FakeCm::violations() const {
  MutexLock lock(mutex_);
  return violations_;
}

}  // namespace mrd::fake
