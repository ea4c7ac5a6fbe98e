#include "daemon/fabric/verbs/cm.h"

#include <utility>

#include "daemon/fabric/verbs/errors.h"
#include "mrd/v1/status.h"
#include "spdlog/spdlog.h"

namespace mrd::fabric::verbs {
namespace {

constexpr size_t kEnding = 8;
// One for each attempt: those that wait for a host that does not answer hold up no other.
constexpr size_t kConnecting = kMostConnects;

}  // namespace

Cm::Cm(Api& api, Devices& devices)
    : api_(api),
      devices_(devices),
      ending_("mrd-cm-end", kEnding),
      loop_("mrd-cm"),
      connecting_("mrd-cm-connect", kConnecting) {
  loop_.RunSync([this] {
    for (const auto& device : devices_.all()) {
      ibv_context* const context = device->context();
      if (const int error = api_.SetAsyncNonBlocking(context); error != 0) {
        spdlog::warn("device {}: no asynchronous events: {}", device->name(), ErrnoName(error));
        continue;
      }
      watches_[context] =
          loop_.Watch(context->async_fd, [this, context] { ReadAsyncEvents(context); });
    }
  });
}

Cm::~Cm() {
  loop_.RunSync([this] {
    for (const auto& [context, watch] : watches_) loop_.Unwatch(watch);
  });
}

void Cm::End(std::unique_ptr<CmId> id, std::shared_ptr<void> held, Workers::Function then) {
  Ending([id = std::move(id), held = std::move(held), then = std::move(then)]() mutable {
    id.reset();
    held.reset();
    if (then) then();
  });
}

void Cm::EndHandshake(std::unique_ptr<CmId> id, std::shared_ptr<void> held,
                      Workers::Function then) {
  const Device* const device = devices_.Find(id->id()->verbs);
  if (device == nullptr || device->info().transport != v1::Device::IWARP) {
    End(std::move(id), std::move(held), std::move(then));
    return;
  }
  const auto it =
      unfinished_.insert(unfinished_.end(), Unfinished{std::move(id), std::move(held), 0});
  it->watch = loop_.Watch(it->id->fd(), [this, it] {
    if (!it->id->NextEvent()) return;  // Whatever it is: the handshake is over.
    loop_.Unwatch(it->watch);
    End(std::move(it->id), std::move(it->held), nullptr);
    unfinished_.erase(it);
  });
  if (it->watch == 0) {  // Then one of those threads waits for it.
    End(std::move(it->id), std::move(it->held), nullptr);
    unfinished_.erase(it);
  }
  if (then) then();
}

void Cm::ReadAsyncEvents(ibv_context* context) {
  for (;;) {
    auto event = api_.GetAsyncEvent(context);
    if (!event.ok()) {
      // The descriptor of a device that is gone stays readable for ever, and answers EIO.
      if (MeansRemoved(event.error)) loop_.Unwatch(watches_[context]);
      return;
    }
    ibv_qp* qp = nullptr;
    switch (event.value.event_type) {
      case IBV_EVENT_QP_FATAL:
      case IBV_EVENT_QP_REQ_ERR:
      case IBV_EVENT_QP_ACCESS_ERR:
        qp = event.value.element.qp;
        break;
      default:
        break;
    }
    // Destroying a queue pair waits until its events are acknowledged, so the pointer holds until
    // then and not longer.
    const auto it = qp != nullptr ? failed_.find(qp) : failed_.end();
    const std::function<void()> failed = it != failed_.end() ? it->second : nullptr;
    api_.AckAsyncEvent(&event.value);
    if (failed) failed();
  }
}

}  // namespace mrd::fabric::verbs
