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
  for (const auto& device : devices_.all()) Watch(device);
}

Cm::~Cm() {
  loop_.RunSync([this] {
    for (const auto& [device, watch] : watches_) loop_.Unwatch(watch);
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
  // Not the Device, which may have been given up.
  if (id->id()->verbs->device->node_type != IBV_NODE_RNIC) {
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

void Cm::Watch(const std::shared_ptr<Device>& device) {
  ibv_context* const context = device->context();
  if (const int error = api_.SetAsyncNonBlocking(context); error != 0) {
    spdlog::warn("device {}: no asynchronous events: {}", device->name(), ErrnoName(error));
    return;
  }
  loop_.RunSync([&] {
    watches_[device.get()] =
        loop_.Watch(context->async_fd, [this, device] { ReadAsyncEvents(device); });
  });
}

void Cm::Forget(const std::shared_ptr<Device>& device) {
  loop_.RunSync([&] {
    // The descriptor is closed when the last thing on the device has ended.
    if (const auto watch = watches_.find(device.get()); watch != watches_.end()) {
      loop_.Unwatch(watch->second);
      watches_.erase(watch);
    }
    const auto all = on_gone_;  // They drop themselves and others.
    for (const auto& [id, gone] : all) {
      if (on_gone_.count(id) != 0) gone(*device);
    }
  });
}

void Cm::SetChanged(std::function<void()> changed) {
  loop_.RunSync([&] { changed_ = std::move(changed); });
}

void Cm::Changed() {
  if (changed_) changed_();
}

absl::Status Cm::Removing(const ibv_context* context) {
  if (const auto device = devices_.Find(context)) {
    device->Fail();
    Changed();
    return device->Gone();
  }
  return MakeError(v1::DEVICE_REMOVED, "the device has gone away",
                   {.advice = "List the devices and use one that is there"});
}

uint64_t Cm::OnGone(std::function<void(const Device&)> gone) {
  const uint64_t id = next_on_gone_++;
  on_gone_[id] = std::move(gone);
  return id;
}

void Cm::ReadAsyncEvents(const std::shared_ptr<Device>& device) {
  for (;;) {
    auto event = api_.GetAsyncEvent(device->context());
    if (!event.ok()) {
      if (!MeansRemoved(event.error)) return;
      // The descriptor of a device that is gone stays readable for ever, and answers EIO.
      loop_.Unwatch(watches_[device.get()]);
      spdlog::warn("device {} is gone: {}", device->name(), ErrnoName(event.error));
      device->Fail();
      Changed();
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
    const ibv_async_event copy = event.value;
    api_.AckAsyncEvent(&event.value);
    if (failed) failed();
    OnAsyncEvent(*device, copy);
  }
}

void Cm::OnAsyncEvent(Device& device, const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_DEVICE_FATAL:
      spdlog::error("device {}: fatal error: all that lies on it ends", device.name());
      device.Fail();
      Changed();
      break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      Changed();  // Whoever looks sees what came of it, and says so.
      break;
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_SRQ_ERR:
      spdlog::warn("device {}: {}", device.name(), ibv_event_type_str(event.event_type));
      break;
    default:
      break;
  }
}

}  // namespace mrd::fabric::verbs
