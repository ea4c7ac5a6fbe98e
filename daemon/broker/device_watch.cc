#include "daemon/broker/device_watch.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/broker/broker.h"
#include "daemon/broker/removal.h"
#include "daemon/log.h"
#include "mrd/v1/status.h"

namespace mrd::broker {

absl::Status DeviceRemoved(const std::string& device) {
  return MakeError(v1::DEVICE_REMOVED, absl::StrCat("device ", device, " has gone away"),
                   {.advice = "List the devices (mrctl devices) and register anew on one that is "
                              "there"});
}

void DeviceWatch::Start() {
  NoteStates(broker_.devices().Read());
  broker_.fabric().Watch([this] { Look(); });
}

void DeviceWatch::Look() {
  {
    MutexLock lock(mutex_);
    wanted_ = true;
    if (running_) return;
    running_ = true;
  }
  broker_.registrar().SubmitCleanup(kDaemonsOwn, [this] { Run(); });
}

void DeviceWatch::Run() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!wanted_) {
        running_ = false;
        return;
      }
      wanted_ = false;
    }
    LookOnce();
  }
}

void DeviceWatch::LookOnce() {
  const fabric::DeviceChanges changes = broker_.fabric().Refresh();
  for (size_t i = 0; i < changes.failed.size(); ++i) {
    broker_.observer().DeviceChanged(DeviceEvent::kFatal);
  }
  for (const fabric::DeviceInfo& device : changes.removed) Remove(device);
  // Calls that name no device find those that there are now.
  NoteStates(broker_.devices().Read(/*anew=*/true));
  for (const fabric::DeviceInfo& device : changes.added) Add(device);
}

bool DeviceWatch::IsGone(const std::string& name, uint64_t generation) const {
  if (!any_gone_.load()) return false;
  MutexLock lock(mutex_);
  const auto gone = gone_.find(name);
  return gone != gone_.end() && generation <= gone->second;
}

void DeviceWatch::Remove(const fabric::DeviceInfo& device) {
  {
    MutexLock lock(mutex_);
    gone_[device.name] = device.generation;
    any_gone_ = true;
    ++pending_[device.name].removals;
  }
  broker_.devices().Drop(device);  // Before anybody is told.
  // The kernel's removal waits for every descriptor, those in the store too.
  if (auto* const ledger = broker_.ledger()) {
    ledger->DropDeviceUpTo(device.name, device.generation);
  }
  Removal::Start(broker_, device, [this, name = device.name] { Removed(name); });
}

void DeviceWatch::Removed(const std::string& name) {
  std::vector<fabric::DeviceInfo> added;
  {
    MutexLock lock(mutex_);
    const auto pending = pending_.find(name);
    if (--pending->second.removals > 0) return;
    added = std::move(pending->second.added);
    pending_.erase(pending);
  }
  for (const fabric::DeviceInfo& device : added) Announce(device);
}

void DeviceWatch::Add(const fabric::DeviceInfo& device) {
  broker_.observer().DeviceChanged(DeviceEvent::kAdded);
  log::Write(spdlog::level::info,
             absl::StrCat("device ", device.name, " was added (generation ", device.generation,
                          "): ", v1::Device::Transport_Name(device.transport), ", ",
                          device.active ? "active" : "down", device.addresses.empty() ? "" : ", ",
                          absl::StrJoin(device.addresses, " ")),
             log::Fields().Device(device.name));
  {
    MutexLock lock(mutex_);
    const auto pending = pending_.find(device.name);
    if (pending != pending_.end()) {
      pending->second.added.push_back(device);
      return;
    }
  }
  Announce(device);
}

void DeviceWatch::Announce(const fabric::DeviceInfo& device) {
  if (IsGone(device)) return;  // It waited for an older one's end, and is gone again.
  for (const SessionRef& session : broker_.All()) {
    session->link->Send({.kind = v1::AttachEvent::DEVICE_ADDED,
                         .message = absl::StrCat("device ", device.name, " can be used"),
                         .device = device.name});
  }
}

void DeviceWatch::NoteStates(const std::vector<DeviceRef>& devices) {
  std::map<std::pair<std::string, uint64_t>, bool> states;
  for (const DeviceRef& device : devices) {
    const std::pair key(device->name, device->generation);
    states[key] = device->active;
    const auto before = states_.find(key);
    if (before == states_.end() || before->second == device->active) continue;
    broker_.observer().DeviceChanged(device->active ? DeviceEvent::kPortUp
                                                    : DeviceEvent::kPortDown);
    log::Write(device->active ? spdlog::level::info : spdlog::level::warn,
               absl::StrCat("device ", device->name,
                            device->active
                                ? ": a port is up"
                                : ": no port is up: no connections until one is; regions stand"),
               log::Fields().Device(device->name));
  }
  states_ = std::move(states);
}

}  // namespace mrd::broker
