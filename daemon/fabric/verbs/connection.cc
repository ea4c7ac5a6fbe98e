#include "daemon/fabric/verbs/connection.h"

#include <utility>

namespace mrd::fabric::verbs {

VerbsConnection::VerbsConnection(Cm& cm, std::unique_ptr<CmId> id, ConnectionInfo info,
                                 ConnectionSpec& spec)
    : cm_(cm),
      id_(std::move(id)),
      info_(std::move(info)),
      left_(std::move(spec.left)),
      event_(std::move(spec.event)) {
  watch_ = cm_.loop().Watch(id_->fd(), [this] { OnReadable(); });
  cm_.WatchQp(id_->id()->qp, [this] { Left(true); });
}

std::unique_ptr<CmId> VerbsConnection::Release() {
  cm_.loop().Unwatch(watch_);
  cm_.UnwatchQp(id_->id()->qp);
  return std::move(id_);
}

VerbsConnection::~VerbsConnection() {
  if (id_ == nullptr) return;
  cm_.loop().RunSync([this] {
    cm_.loop().Unwatch(watch_);
    cm_.UnwatchQp(id_->id()->qp);
    left_ = nullptr;
    event_ = nullptr;
  });
  if (cm_.loop().InLoop()) {
    // Its maker was no longer interested: it ends in its own callback, and the loop does not wait
    // for that.
    cm_.Ending([id = std::move(id_)]() mutable { id.reset(); });
  } else {
    id_.reset();
  }
}

void VerbsConnection::OnReadable() {
  const bool stands = left_ != nullptr && event_ != nullptr;
  if (stands) event_(true);
  while (const auto event = id_->NextEvent()) {
    switch (event->type) {
      case RDMA_CM_EVENT_DISCONNECTED:
        // The peer's own rdma_disconnect ends only when it is answered (InfiniBand's DREP).
        cm_.api().Disconnect(id_->id());
        Left(false);
        return;  // The callback may have ended this object. What else is to be read makes the loop
                 // call again.
      case RDMA_CM_EVENT_DEVICE_REMOVAL:
        cm_.Removing(id_->id()->verbs).IgnoreError();
        Left(true);
        return;
      default:
        break;
    }
  }
  if (stands) event_(false);
}

void VerbsConnection::Left(bool error) {
  event_ = nullptr;
  if (const auto left = std::exchange(left_, nullptr)) left(error);
}

}  // namespace mrd::fabric::verbs
