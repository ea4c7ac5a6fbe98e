#include "daemon/fabric/verbs/connect_attempt.h"

#include <errno.h>

#include <utility>

#include "daemon/fabric/verbs/addresses.h"
#include "daemon/fabric/verbs/connection.h"
#include "daemon/fabric/verbs/errors.h"
#include "mrd/v1/status.h"

namespace mrd::fabric::verbs {
namespace {

// A neighbour that is there answers at once.
constexpr std::chrono::milliseconds kResolveWait{5000};

absl::Status WaitEnded() {
  return MakeError(v1::WAIT_ENDED, "the connection did not stand in the time given",
                   {.advice = "See that the peer accepts it, or wait longer"});
}

sockaddr* Raw(sockaddr_storage& address) { return reinterpret_cast<sockaddr*>(&address); }

}  // namespace

ConnectAttempt::ConnectAttempt(Cm& cm, sockaddr_storage source, sockaddr_storage destination,
                               ConnectionSpec spec, EstablishedCallback done)
    : cm_(cm),
      source_(source),
      destination_(destination),
      spec_(std::move(spec)),
      done_(std::move(done)) {}

void ConnectAttempt::Start(absl::AnyInvocable<void()> finished) {
  finished_ = std::move(finished);
  auto id = CmId::Create(cm_.api());
  if (!id.ok()) {
    Finish(IdError(EndpointText(destination_), id.error));
    return;
  }
  id_ = std::move(id.value);
  sockaddr* const source = source_.ss_family == AF_UNSPEC ? nullptr : Raw(source_);
  if (const int error = cm_.api().ResolveAddr(id_->id(), source, Raw(destination_), RemainingMs());
      error != 0) {
    Finish(Error("its address does not resolve", error));
    return;
  }
  timer_ = cm_.loop().At(spec_.deadline, [this] { Finish(WaitEnded()); });
  Watch();  // May end it.
}

void ConnectAttempt::Finish(absl::StatusOr<Established> result) {
  if (done_ == nullptr) return;
  const auto self = shared_from_this();
  auto done = std::exchange(done_, nullptr);
  cm_.loop().Cancel(timer_);
  Unwatch();
  if (finished_) std::exchange(finished_, nullptr)();
  if (connecting_) {
    done(std::move(result));
  } else if (id_ == nullptr) {
    spec_.held = nullptr;
    done(std::move(result));
  } else {
    End([done = std::move(done), result = std::move(result)]() mutable {
      done(std::move(result));
    });
  }
}

void ConnectAttempt::OnGone(const Device& device) {
  if (id_ != nullptr && id_->id()->verbs == device.context()) Finish(device.Gone());
}

void ConnectAttempt::End(Workers::Function then) {
  if (asked_) {
    cm_.EndHandshake(std::move(id_), std::move(spec_.held), std::move(then));
  } else {
    cm_.End(std::move(id_), std::move(spec_.held), std::move(then));
  }
}

void ConnectAttempt::OnReadable() {
  while (const auto event = id_->NextEvent()) {
    if (!OnEvent(*event)) return;
  }
}

bool ConnectAttempt::OnEvent(const CmEvent& event) {
  asked_ = false;
  if (event.status == 0) {
    switch (event.type) {
      case RDMA_CM_EVENT_ADDR_RESOLVED:
        if (const int error = cm_.api().ResolveRoute(id_->id(), RemainingMs()); error != 0) {
          Finish(Error("its route does not resolve", error));
          return false;
        }
        return true;
      case RDMA_CM_EVENT_ROUTE_RESOLVED:
        Connect();
        return false;
      case RDMA_CM_EVENT_ESTABLISHED: {
        Unwatch();
        ConnectionInfo info = id_->Info();
        const auto device = cm_.devices().Find(id_->id()->verbs);
        if (device == nullptr) {  // Given up since Connect has found it.
          Finish(cm_.Removing(id_->id()->verbs));
          return false;
        }
        info.device = device->name();
        info.generation = device->info().generation;
        auto connection =
            std::make_unique<VerbsConnection>(cm_, std::move(id_), std::move(info), spec_);
        if (!connection->watched()) {
          cm_.End(connection->Release(), std::move(spec_.held), nullptr);
          Finish(Error("the daemon cannot wait for its events", ENOMEM));
          return false;
        }
        Finish(Established{std::move(connection), event.private_data});
        return false;
      }
      default:
        break;
    }
  }
  switch (event.type) {
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      Finish(cm_.Removing(id_->id()->verbs));
      break;
    case RDMA_CM_EVENT_ADDR_ERROR:
      Finish(Error("its address does not resolve", event.Error()));
      break;
    case RDMA_CM_EVENT_ROUTE_ERROR:
      Finish(Error("its route does not resolve", event.Error()));
      break;
    case RDMA_CM_EVENT_REJECTED:
      Finish(Error("refused", event.Error()));
      break;
    case RDMA_CM_EVENT_UNREACHABLE:
      Finish(Error("no answer", event.Error()));
      break;
    default:
      Finish(Error("the connection broke", event.Error()));
      break;
  }
  return false;
}

void ConnectAttempt::Connect() {
  if (spec_.wanted && !spec_.wanted()) {
    Finish(WaitEnded());
    return;
  }
  const auto device = cm_.devices().Find(id_->id()->verbs);
  if (device == nullptr) {
    cm_.Changed();  // A new one, maybe.
    Finish(Error("its device is not one of the daemon's", ENODEV));
    return;
  }
  // Here and not in the other thread, so that nothing of the spec is called once `done` has been.
  auto domain = spec_.domain(device->name());
  if (!domain.ok()) {
    Finish(domain.status());
    return;
  }
  Unwatch();
  connecting_ = true;
  cm_.Connecting([self = shared_from_this(), device, domain = *std::move(domain)]() mutable {
    absl::Status status = self->MakeConnection(*device, std::move(domain));
    self->cm_.loop().Post([self, status = std::move(status)] { self->Connected(status); });
  });
}

absl::Status ConnectAttempt::MakeConnection(Device& device, std::shared_ptr<Domain> domain) {
  if (absl::Status status = id_->CreateQp(device, std::move(domain)); !status.ok()) return status;
  rdma_conn_param param = {};
  param.private_data = spec_.private_data.data();
  param.private_data_len = spec_.private_data.size();
  // The device's most: the peer may read as the client may.
  param.responder_resources = RDMA_MAX_RESP_RES;
  param.initiator_depth = RDMA_MAX_INIT_DEPTH;
  param.retry_count = 7;
  param.rnr_retry_count = 7;  // Without end: the peer may post its receives later.
  if (const int error = cm_.api().Connect(id_->id(), &param); error != 0) {
    return Error("refused", error);
  }
  return absl::OkStatus();
}

void ConnectAttempt::Connected(const absl::Status& status) {
  connecting_ = false;
  asked_ = status.ok();
  if (done_ == nullptr) {  // The wait has ended meanwhile.
    End(nullptr);
  } else if (!status.ok()) {
    Finish(status);
  } else {
    Watch();
  }
}

void ConnectAttempt::Watch() {
  watch_ = cm_.loop().Watch(id_->fd(), [self = shared_from_this()] { self->OnReadable(); });
  if (watch_ == 0) Finish(Error("the daemon cannot wait for its events", ENOMEM));
}

void ConnectAttempt::Unwatch() { cm_.loop().Unwatch(std::exchange(watch_, 0)); }

int ConnectAttempt::RemainingMs() const {
  const auto now = std::chrono::steady_clock::now();
  if (spec_.deadline <= now) return 1;
  if (spec_.deadline - now > kResolveWait) return kResolveWait.count();
  return std::chrono::ceil<std::chrono::milliseconds>(spec_.deadline - now).count();
}

absl::Status ConnectAttempt::Error(const char* what, int error) const {
  return ConnectionError(EndpointText(destination_), what, error);
}

}  // namespace mrd::fabric::verbs
