#include "daemon/broker/ledger/ledger.h"

#include <sys/stat.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/broker/ledger/version.h"
#include "spdlog/spdlog.h"

namespace mrd::broker::ledger {
namespace {

constexpr uint64_t kIdsAtOnce = 1 << 16;

// Sets `highest` to at least `value`.
void Raise(std::atomic<uint64_t>& highest, uint64_t value) {
  uint64_t seen = highest.load();
  while (seen < value && !highest.compare_exchange_weak(seen, value)) {
  }
}

}  // namespace

Ledger::Ledger(std::unique_ptr<Slots> slots, Store& store)
    : slots_(std::move(slots)),
      store_(store),
      next_fd_name_(slots_->counter(Slots::kNextFdName)),
      ids_reserved_(slots_->counter(Slots::kNextId)),
      most_handle_(slots_->counter(Slots::kMostHandle)) {}

absl::StatusOr<Record> Ledger::PutAs(Kind kind, const google::protobuf::MessageLite& message,
                                     uint64_t stamp) {
  const auto id = slots_->Put(kind, BytesOf(message), stamp);
  if (!id.ok()) return id.status();
  return Record(*slots_, *id);
}

absl::StatusOr<StoredFd> Ledger::Add(int fd) {
  const uint64_t number = next_fd_name_.fetch_add(1);
  slots_->RaiseCounter(Slots::kNextFdName, number + 1);
  const std::string name = absl::StrFormat("f%x", number);
  if (auto added = store_.Add(name, fd); !added.ok()) return added;
  return StoredFd(store_, name);
}

absl::StatusOr<StoredFd> Ledger::Keep(int fd) {
  const size_t most = store_.limit() - std::min(kForDevices, store_.limit() / 4);
  if (store_.used() >= most) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the store is full: it has ", most, " places for connections"));
  }
  return Add(fd);
}

bool Ledger::KeepDevice(fabric::Fabric& fabric, const fabric::DeviceInfo& device) {
  MutexLock lock(devices_mutex_);
  const auto [place, is_new] = devices_.try_emplace({device.name, device.generation});
  if (place->second.record) return true;
  const absl::Status kept = TryToKeep(fabric, device, &place->second);
  if (!kept.ok() && is_new) {
    spdlog::error("device {}: what lies on it does not survive the daemon: {}", device.name,
                  std::string(kept.message()));
  }
  return kept.ok();
}

absl::Status Ledger::TryToKeep(fabric::Fabric& fabric, const fabric::DeviceInfo& device,
                               Kept* kept) {
  const auto keepable = fabric.Keep(device);
  if (!keepable.ok()) return keepable.status();
  auto stored = Add(keepable->fd);
  if (!stored.ok()) return stored.status();
  struct stat file = {};
  fstat(keepable->fd, &file);
  pb::Device record;
  record.set_fd_name(stored->name());
  record.set_name(device.name);
  record.set_generation(device.generation);
  record.set_driver_id(keepable->driver_id);
  record.set_rdev(file.st_rdev);
  record.set_opened(NanosSince1970(device.opened));
  record.set_transport(device.transport);
  record.set_any_address(device.any_address);
  record.set_max_region_bytes(device.max_region_bytes);
  record.set_access(device.access);
  auto put = PutAs(Kind::kDevice, record);
  if (!put.ok()) return put.status();
  slots_->RaiseCounter(Slots::kGeneration, device.generation);
  *kept = {*std::move(stored), *std::move(put)};
  return absl::OkStatus();
}

std::set<std::pair<std::string, uint64_t>> Ledger::KeptDevices() {
  std::set<std::pair<std::string, uint64_t>> kept;
  MutexLock lock(devices_mutex_);
  for (const auto& [opening, what] : devices_) {
    if (what.record) kept.insert(opening);
  }
  return kept;
}

void Ledger::AdoptDevice(const fabric::DeviceInfo& device, Record record, StoredFd stored) {
  MutexLock lock(devices_mutex_);
  devices_[{device.name, device.generation}] = {std::move(stored), std::move(record)};
}

void Ledger::DropDevice(const std::string& device, uint64_t generation) {
  MutexLock lock(devices_mutex_);
  devices_.erase({device, generation});
}

void Ledger::DropDeviceUpTo(const std::string& device, uint64_t generation) {
  MutexLock lock(devices_mutex_);
  devices_.erase(devices_.lower_bound({device, 0}), devices_.upper_bound({device, generation}));
}

void Ledger::UsesId(uint64_t id) {
  if (id < ids_reserved_.load(std::memory_order_relaxed)) return;
  const uint64_t reserved = id + kIdsAtOnce;
  // The file first: who finds it reserved here uses it at once.
  slots_->RaiseCounter(Slots::kNextId, reserved);
  Raise(ids_reserved_, reserved);
}

void Ledger::UsesHandle(uint32_t handle) {
  if (handle <= most_handle_.load(std::memory_order_relaxed)) return;
  slots_->RaiseCounter(Slots::kMostHandle, handle);
  Raise(most_handle_, handle);
}

void CallRecord::ForgetRequest() {
  pb::Call call;
  if (!ledger_.Read(record_, &call)) return;
  call.clear_request_id();
  call.clear_fingerprint();
  call.clear_lease_ids();
  auto put = ledger_.Put(call);
  if (put.ok()) record_ = *std::move(put);  // The one before is erased by its end.
}

}  // namespace mrd::broker::ledger
