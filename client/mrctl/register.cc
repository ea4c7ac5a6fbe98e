#include "client/mrctl/register.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "client/mrctl/bar.h"
#include "client/mrctl/peers.h"
#include "client/mrctl/stop.h"
#include "client/mrctl/table.h"
#include "client/remote_region.h"
#include "mrd/v1/status.h"

namespace mrctl {
namespace {

constexpr size_t kMostPrivateData = 196;  // rdma_accept(3).
constexpr uint64_t kBasePage = 4096;
constexpr uint64_t kLong = uint64_t{1} << 30;  // From here on it is seen to take a while.
constexpr uint64_t kHugePage = 2 * 1024 * 1024;

struct Held {
  std::vector<mrd::Buffer> buffers;
  std::vector<mrd::Region> regions;
};

// A device takes huge pages as such only if all of the range consists of them.
bool OfWholeHugePages(const RegisterCommand& command) {
  const auto& flags = command.access.flags();
  return std::count(flags.begin(), flags.end(), mrd::v1::HUGETLB) > 0;
}

uint64_t RoundUp(uint64_t bytes, uint64_t page) { return (bytes - 1) / page * page + page; }

// Before memory is made, which may take half a minute.
absl::Status CheckLengthForPeers(const RegisterCommand& command) {
  const bool huge = OfWholeHugePages(command) && command.pages == mrd::Pages::kHuge2M;
  // Not rounded where that could overflow.
  if (command.size <= UINT32_MAX && (!huge || RoundUp(command.size, kHugePage) <= UINT32_MAX)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("--size " + std::to_string(command.size) +
                                    ": with --listen less than 4G, since peers are told a length "
                                    "of 32 bits; register several with --count");
}

// Which leases an event is about: "lease 17: ", "3 leases (17 ...): ", or nothing.
std::string WhatOf(const mrd::v1::AttachEvent& event) {
  const int count = event.lease_ids_size();
  if (count == 0) return "";
  const std::string first = std::to_string(event.lease_ids(0));
  if (count == 1) return "lease " + first + ": ";
  return std::to_string(count) + " leases (" + first + " ...): ";
}

// Before memory is made, too. The daemon has the last word: others of this user register and
// deregister meanwhile.
absl::Status CheckQuota(const mrd::Client& client, const RegisterCommand& command) {
  auto status = client.GetStatus();
  if (!status.ok()) return status.status();
  for (const mrd::v1::Quota& quota : status->quotas()) {
    if (quota.name().rfind("pinned bytes", 0) != 0) continue;
    const uint64_t left = quota.limit() - std::min(quota.limit(), quota.used());
    const uint64_t regions = command.count * std::max<uint64_t>(command.devices.size(), 1);
    // Whole pages are counted.
    if (command.size <= left && RoundUp(command.size, kBasePage) <= left / regions) continue;
    return mrd::MakeError(
        mrd::v1::QUOTA_BYTES,
        std::to_string(regions) + " times " + std::to_string(command.size) +
            " bytes would pass the limit of " + std::to_string(quota.limit()) + " " + quota.name() +
            ", of which " + std::to_string(quota.used()) + " are in use (" +
            (status->policy().rule().empty()
                 ? "built-in defaults"
                 : "rule \"" + status->policy().rule() + "\" of the policy") +
            "); nothing was made, and the daemon was not asked",
        {.limit_name = quota.name(),
         .limit = quota.limit(),
         .used = quota.used(),
         .advice = "Deregister what is not needed, or ask the operator for a higher limit"});
  }
  return absl::OkStatus();
}

// `bar` shows how far it is.
absl::StatusOr<Held> MakeRegions(const mrd::Client& client, const RegisterCommand& command,
                                 Bar& bar) {
  if (absl::Status room = CheckQuota(client, command); !room.ok()) return room;
  if (!command.domain.empty()) {
    auto domain =
        client.OpenDomain(command.domain, {.create = !command.join, .mode = command.domain_mode});
    if (!domain.ok()) return domain.status();
  }
  const bool long_work = command.size >= kLong / command.count;
  Held held;
  std::vector<mrd::Range> ranges;
  held.buffers.reserve(command.count);  // Ranges point into it.
  for (uint32_t i = 0; i < command.count; ++i) {
    if (long_work) {
      bar.Say("making buffer " + std::to_string(i + 1) + " of " + std::to_string(command.count) +
              ", " + FormatSize(command.size));
    }
    auto buffer = client.CreateBuffer(command.size, {.pages = command.pages, .name = "mrctl"});
    if (!buffer.ok()) return buffer.status();
    held.buffers.push_back(std::move(*buffer));
    const mrd::Buffer& made = held.buffers.back();
    ranges.emplace_back(made, 0, OfWholeHugePages(command) ? made.mapped_size() : made.size());
  }
  mrd::RegisterOptions options;
  options.devices = command.devices;
  options.all_devices = command.all_devices;
  options.preset = command.access.preset();
  for (const int flag : command.access.flags()) {
    options.flags.push_back(static_cast<mrd::v1::AccessFlag>(flag));
  }
  options.ttl = command.ttl;
  options.domain = command.domain;
  // Bytes are mapped first and pinned then: the bar goes over both.
  options.on_progress = [&bar](const mrd::v1::AttachEvent::Progress& progress) {
    bar.Show("registering", (progress.bytes_mapped() + progress.bytes_pinned()) / 2,
             progress.bytes_total());
    return true;
  };
  auto regions = client.Register(options, ranges);
  if (!regions.ok()) return regions.status();
  held.regions = std::move(*regions);
  return held;
}

size_t DevicesOf(const mrd::Region& region) {
  std::set<std::string> devices;
  for (const mrd::RegionKey& key : region.keys()) devices.insert(key.device);
  return devices.size();
}

// What each peer is told: as many of the regions as private data takes, by their keys on the
// listener's device.
absl::StatusOr<std::string> Announcement(const std::vector<mrd::Region>& regions,
                                         const mrd::v1::Endpoint& listener) {
  if (listener.device().empty() && DevicesOf(regions.front()) > 1) {
    return absl::InvalidArgumentError(
        "peers of which device? The regions have keys on several: give --listen the address of one "
        "device, or name one with --device");
  }
  std::string bytes;
  for (const mrd::Region& region : regions) {
    if (bytes.size() + mrd::kRemoteRegionBytes > kMostPrivateData) break;
    auto remote = mrd::RemoteRegionOf(region, listener.device());
    if (!remote.ok()) return remote.status();
    bytes += mrd::EncodeRemoteRegion(*remote);
  }
  return bytes;
}

std::string Text(const std::vector<mrd::Region>& regions, const mrd::v1::Endpoint* listener) {
  Table table({"DEVICE", "ADDRESS", ">LENGTH", "LKEY", "RKEY", ">LEASE"});
  for (const mrd::Region& region : regions) {
    for (const mrd::RegionKey& key : region.keys()) {
      table.Add({key.device, FormatAddress(region.addr()), FormatSize(region.length()),
                 FormatKey(key.lkey), FormatKey(key.rkey), std::to_string(region.lease_id())});
    }
  }
  std::string text = table.Text();
  if (listener) {
    text += "listening on " + FormatHostPort(listener->local_address(), listener->local_port()) +
            (listener->device().empty() ? "" : ", device " + listener->device()) + "\n";
  }
  return text;
}

// {"leases": [Lease], "endpoint": Endpoint}: of Lease what the client knows.
std::string Json(const std::vector<mrd::Region>& regions, const mrd::v1::Endpoint* listener) {
  std::string text = "{\"leases\": [";
  const char* separator = "";
  for (const mrd::Region& region : regions) {
    mrd::v1::Lease lease;
    lease.set_lease_id(region.lease_id());
    lease.set_addr(region.addr());
    lease.set_length(region.length());
    for (const mrd::RegionKey& key : region.keys()) {
      auto* out = lease.add_keys();
      out->set_device(key.device);
      out->set_generation(key.generation);
      out->set_lkey(key.lkey);
      out->set_rkey(key.rkey);
    }
    text += std::exchange(separator, ",") + ("\n  " + ToJson(lease));
  }
  text += "\n]";
  if (listener) text += ",\n \"endpoint\": " + ToJson(*listener);
  return text + "}\n";
}

// The end of the session, as its thread found it.
class Lost final {
 public:
  void Set(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    status_ = status;
  }
  absl::Status Get() {
    std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  std::mutex mutex_;
  absl::Status status_;
};

// A restart of the daemon that the session outlives.
class Restarts final {
 public:
  explicit Restarts(const GlobalOptions& options) : options_(options) {}

  // Peers are accepted from now on; nullptr: not any more.
  void Listening(const mrd::Client* client, const std::vector<mrd::Region>* regions,
                 const mrd::Listener* listener, Peers* peers) {
    std::lock_guard lock(mutex_);
    client_ = client;
    regions_ = regions;
    listener_ = listener;
    peers_ = peers;
  }

  void OnEvent(const mrd::v1::AttachEvent& event) {
    // The first on its connection: of one that stood, events were lost for want of room.
    if (event.kind() != mrd::v1::AttachEvent::EVENTS_LOST || event.sequence() != 1) return;
    Note(options_, "the daemon was restarted; leases, keys and connections are as they were");
    std::lock_guard lock(mutex_);
    if (!client_) return;
    // Peers that come from now on need keys of the new generation.
    const auto added = client_->AddKeys();
    if (!added.ok()) Note(options_, "for new peers: " + std::string(added.status().message()));
    std::set<uint64_t> left = peers_->Connected();
    const auto now = client_->ListEndpoints();
    if (!now.ok()) return;
    for (const auto& endpoint : *now) {
      if (endpoint.state() == mrd::v1::Endpoint::CONNECTED) left.erase(endpoint.endpoint_id());
    }
    const auto announcement = Announcement(*regions_, listener_->info());
    if (announcement.ok()) peers_->Restarted(left, *announcement);
  }

 private:
  const GlobalOptions& options_;
  std::mutex mutex_;
  const mrd::Client* client_ = nullptr;
  const std::vector<mrd::Region>* regions_ = nullptr;
  const mrd::Listener* listener_ = nullptr;
  Peers* peers_ = nullptr;
};

}  // namespace

int RunRegister(const GlobalOptions& options, const RegisterCommand& command) {
  if (command.listen) {
    if (absl::Status told = CheckLengthForPeers(command); !told.ok()) return Fail(options, told);
  }
  Stop stop;
  if (!stop.status().ok()) return Fail(options, stop.status());
  Lost lost;
  Peers peers(options);
  Restarts restarts(options);
  mrd::AttachOptions attach;
  attach.name = "mrctl register";
  // What was printed would not be true any more.
  attach.on_loss = mrd::OnLoss::kTell;
  attach.on_event = [&](const mrd::v1::AttachEvent& event) {
    if (!event.message().empty()) Note(options, WhatOf(event) + event.message());
    peers.OnEvent(event);
    restarts.OnEvent(event);
  };
  attach.on_lost = [&](const absl::Status& status) {
    lost.Set(status);
    stop.Now();
  };
  auto client = Attach(options, std::move(attach));
  if (!client.ok()) return Fail(options, client.status());
  absl::StatusOr<Held> held = Held();
  {
    Bar bar(/*shown=*/!options.json);
    held = MakeRegions(*client, command, bar);
  }
  if (!held.ok()) return Fail(options, held.status());
  stop.TakeSignals();

  std::optional<mrd::Listener> listener;
  if (command.listen) {
    // A region's keys serve connections in its own domain only.
    auto listening = client->Listen(
        {.address = command.listen->host, .port = command.listen->port, .domain = command.domain});
    if (!listening.ok()) return Fail(options, listening.status());
    listener = std::move(*listening);
    auto announcement = Announcement(held->regions, listener->info());
    if (!announcement.ok()) return Fail(options, announcement.status());
    peers.Start(&*listener, *announcement);
    restarts.Listening(&*client, &held->regions, &*listener, &peers);
  }
  const mrd::v1::Endpoint* endpoint = listener ? &listener->info() : nullptr;
  const int printed =
      Print(options, options.json ? Json(held->regions, endpoint) : Text(held->regions, endpoint));
  // Where nobody got the keys there is nobody to hold them for.
  if (printed == kOk) stop.Wait(command.seconds);

  restarts.Listening(nullptr, nullptr, nullptr, nullptr);
  peers.Stop();
  if (absl::Status status = lost.Get(); !status.ok()) return Fail(options, status);
  absl::Status status = client->Deregister(held->regions);
  if (!status.ok()) return Fail(options, status);
  Note(options, std::to_string(held->regions.size()) +
                    (held->regions.size() == 1 ? " region" : " regions") + " deregistered");
  // Before what its callbacks use goes away.
  client->Detach();
  return printed;
}

}  // namespace mrctl
