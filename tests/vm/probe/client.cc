#include "tests/vm/probe/client.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/remote_region.h"
#include "tests/vm/probe/words.h"

namespace probe {
namespace {

constexpr std::chrono::seconds kPatience{10};
constexpr int kMostFds = 1024;

// Asks until it is true or patience ends.
template <typename Condition>
bool Await(Condition&& condition) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::string Hex(uint64_t value) { return absl::StrCat("0x", absl::Hex(value)); }

// "addr0=... length0=... lkey0.rxe0=... rkey0.rxe0=..." of each.
std::string Describe(const std::vector<mrd::Region>& regions) {
  std::string text = absl::StrCat("regions=", regions.size());
  for (size_t i = 0; i < regions.size(); ++i) {
    const mrd::Region& region = regions[i];
    absl::StrAppend(&text, " lease", i, "=", region.lease_id(), " addr", i, "=", Hex(region.addr()),
                    " length", i, "=", region.length());
    for (const mrd::RegionKey& key : region.keys()) {
      absl::StrAppend(&text, " lkey", i, ".", key.device, "=", Hex(key.lkey), " rkey", i, ".",
                      key.device, "=", Hex(key.rkey));
    }
  }
  return text;
}

}  // namespace

ProbeClient::~ProbeClient() {
  for (const mrd::Listener& listener : listeners_) listener.Close().IgnoreError();
  for (std::thread& acceptor : acceptors_) acceptor.join();
}

Answer ProbeClient::Attach(mrd::AttachOptions options) {
  options.on_loss = mrd::OnLoss::kTell;
  options.on_lost = [this](const absl::Status&) {
    const std::lock_guard lock(lost_.mutex);
    lost_.lost = true;
  };
  options.on_event = [this](const mrd::v1::AttachEvent& event) {
    events_.Add(event);
    const std::lock_guard lock(lost_.mutex);
    lost_.events.push_back(event);
  };
  auto client = mrd::Client::Attach(std::move(options));
  if (!client.ok()) return client.status();
  client_ = std::move(*client);
  return absl::StrCat("session=", client_->session_id(), " fabric=", client_->welcome().fabric());
}

Answer ProbeClient::Detach() {
  client_->Detach();
  return "";
}

Answer ProbeClient::AwaitLost() {
  const bool lost = Await([this] {
    const std::lock_guard lock(lost_.mutex);
    return lost_.lost;
  });
  if (!lost) return absl::DeadlineExceededError("the session stands");
  return client_->SessionStatus().ok() ? Answer(absl::InternalError("lost, but usable"))
                                       : Answer(std::string());
}

Answer ProbeClient::AwaitEvent(const std::string& kind, const std::string& device) {
  std::string answer;
  std::set<uint64_t> ended;
  const bool found = Await([&] {
    const std::lock_guard lock(lost_.mutex);
    for (auto it = lost_.events.begin(); it != lost_.events.end(); ++it) {
      if (mrd::v1::AttachEvent::EventKind_Name(it->kind()) != kind || it->device() != device) {
        continue;
      }
      answer = absl::StrCat("sequence=", it->sequence(), " leases=", it->lease_ids_size(),
                            " endpoints=", it->endpoint_ids_size());
      ended.insert(it->endpoint_ids().begin(), it->endpoint_ids().end());
      lost_.events.erase(it);
      return true;
    }
    return false;
  });
  if (!found) return absl::DeadlineExceededError(absl::StrCat("no ", kind, " of ", device));
  const std::lock_guard lock(endpoints_mutex_);
  std::erase_if(endpoints_, [&ended](const mrd::Endpoint& endpoint) {
    return ended.count(endpoint.endpoint_id()) != 0;
  });
  return answer;
}

Answer ProbeClient::Status() {
  auto status = client_->GetStatus();
  if (!status.ok()) return status.status();
  const mrd::v1::Session& session = status->session();
  std::string death = session.death();
  for (char& c : death) c = c == ' ' ? '_' : c;
  return absl::StrCat("pid=", session.pid(), " uid=", session.uid(), " regions=", session.regions(),
                      " leases=", session.leases(), " pinned_bytes=", session.pinned_bytes(),
                      " buffers=", session.buffers(), " endpoints=", session.endpoints(),
                      " death=", death);
}

Answer ProbeClient::Devices() {
  auto devices = client_->ListDevices();
  if (!devices.ok()) return devices.status();
  std::string text = absl::StrCat("devices=", devices->size());
  for (const mrd::v1::Device& device : *devices) {
    std::string flags;
    for (const int flag : device.access_flags()) {
      absl::StrAppend(&flags, flags.empty() ? "" : ",",
                      mrd::v1::AccessFlag_Name(static_cast<mrd::v1::AccessFlag>(flag)));
    }
    const std::string& name = device.name();
    absl::StrAppend(
        &text, " ", name, ".transport=", mrd::v1::Device::Transport_Name(device.transport()), " ",
        name, ".state=", mrd::v1::Device::State_Name(device.state()), " ", name,
        ".addresses=", absl::StrJoin(device.addresses(), ","), " ", name,
        ".endpoints=", device.endpoints(), " ", name, ".any_address=", device.any_address(), " ",
        name, ".access=", flags, " ", name, ".max_regions=", device.max_regions());
  }
  return text;
}

// Buffers. -----------------------------------------------------------------------------------

absl::StatusOr<ProbeClient::Memory*> ProbeClient::Find(const std::string& name) {
  const auto found = memory_.find(name);
  if (found == memory_.end()) return Misspoken("no buffer " + name);
  return &found->second;
}

Answer ProbeClient::CreateBuffer(const std::string& name, uint64_t size, mrd::Pages pages) {
  auto buffer = client_->CreateBuffer(size, {.pages = pages, .name = "probe"});
  if (!buffer.ok()) return buffer.status();
  const uint64_t address = buffer->addr();
  const int fd = buffer->fd();
  memory_[name] = {
      .buffer = std::move(*buffer), .fd = fd, .own = {}, .data = reinterpret_cast<char*>(address)};
  return absl::StrCat("addr=", Hex(address));
}

Answer ProbeClient::Adopt(const std::string& name, mrd::internal::UniqueFd fd, void* address,
                          uint64_t size) {
  auto buffer = client_->AdoptBuffer(fd.get(), address, size, {.populate = false});
  if (!buffer.ok()) return buffer.status();
  const int number = fd.get();
  memory_[name] = {.buffer = std::move(*buffer),
                   .fd = number,
                   .own = std::move(fd),
                   .data = static_cast<char*>(address)};
  return absl::StrCat("addr=", Hex(reinterpret_cast<uint64_t>(address)));
}

Answer ProbeClient::AdoptMemfd(const std::string& name, const MemfdOptions& options) {
  auto memfd = MakeMemfd(options);
  if (!memfd.ok()) return memfd.status();
  if (options.read_only) return AdoptAnything(name, memfd->fd.get(), options.size);
  return Adopt(name, std::move(memfd->fd), memfd->address, options.size);
}

Answer ProbeClient::AdoptAnything(const std::string& name, int fd, uint64_t size) {
  auto created = CreateBuffer(name, size, mrd::Pages::kBase4K);
  if (!created.ok()) return created;
  // In the place of the library's, which it passes at the first registration.
  if (dup3(fd, memory_[name].fd, O_CLOEXEC) < 0) return absl::ErrnoToStatus(errno, "dup3");
  return created;
}

Answer ProbeClient::AdoptDmaBuf(const std::string& name, uint64_t size) {
  auto memfd = MakeMemfd({.size = size});
  if (!memfd.ok()) return memfd.status();
  auto dma_buf = MakeDmaBuf(memfd->fd.get(), size);
  if (!dma_buf.ok()) return dma_buf.status();
  return Adopt(name, std::move(*dma_buf), memfd->address, size);
}

Answer ProbeClient::Drop(const std::string& name) {
  return memory_.erase(name) == 1 ? Answer(std::string()) : Misspoken("no buffer " + name);
}

Answer ProbeClient::Release(const std::string& name) {
  auto memory = Find(name);
  if (!memory.ok()) return memory.status();
  if (absl::Status status = (*memory)->buffer->Release(); !status.ok()) return status;
  return "";
}

Answer ProbeClient::Truncate(const std::string& name, uint64_t size) {
  auto memory = Find(name);
  if (!memory.ok()) return memory.status();
  if (ftruncate((*memory)->fd, static_cast<off_t>(size)) == 0) return "";
  return absl::StrCat("errno=", strerrorname_np(errno));
}

Answer ProbeClient::PunchHole(const std::string& name, uint64_t offset, uint64_t length) {
  auto memory = Find(name);
  if (!memory.ok()) return memory.status();
  if (fallocate((*memory)->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(offset), static_cast<off_t>(length)) != 0) {
    return absl::ErrnoToStatus(errno, "FALLOC_FL_PUNCH_HOLE");
  }
  return "";
}

Answer ProbeClient::Write(const std::string& name, uint64_t offset, const std::string& data) {
  auto memory = Find(name);
  if (!memory.ok()) return memory.status();
  memcpy((*memory)->data + offset, data.data(), data.size());
  return "";
}

Answer ProbeClient::Expect(const std::string& name, uint64_t offset, const std::string& data) {
  auto memory = Find(name);
  if (!memory.ok()) return memory.status();
  const char* const bytes = (*memory)->data + offset;
  if (Await([&] { return memcmp(bytes, data.data(), data.size()) == 0; })) return "";
  size_t at = 0;
  while (bytes[at] == data[at]) ++at;
  return absl::DataLossError(
      absl::StrCat("byte ", at, " is 0x", absl::Hex(static_cast<unsigned char>(bytes[at])),
                   ", expected 0x", absl::Hex(static_cast<unsigned char>(data[at]))));
}

// Regions. -----------------------------------------------------------------------------------

Answer ProbeClient::Register(const std::string& buffer, const RegisterRequest& request) {
  auto memory = Find(buffer);
  if (!memory.ok()) return memory.status();
  std::vector<mrd::Range> ranges;
  for (uint64_t i = 0; i < request.count; ++i) {
    ranges.emplace_back(*(*memory)->buffer, request.offset + i * request.length, request.length);
  }
  auto regions = client_->Register(request.options, ranges);
  if (!regions.ok()) return regions.status();
  std::string text = Describe(*regions);
  regions_[request.name] = std::move(*regions);
  return text;
}

Answer ProbeClient::Deregister(const std::string& name) {
  const auto found = regions_.find(name);
  if (found == regions_.end()) return Misspoken("no regions " + name);
  if (absl::Status status = client_->Deregister(found->second); !status.ok()) return status;
  regions_.erase(found);
  return "";
}

Answer ProbeClient::Leases() {
  auto leases = client_->ListLeases();
  if (!leases.ok()) return leases.status();
  return absl::StrCat("leases=", leases->size());
}

// Endpoints. ---------------------------------------------------------------------------------

absl::StatusOr<std::string> ProbeClient::Announcement(const std::string& regions,
                                                      const std::string& device) {
  const auto found = regions_.find(regions);
  if (found == regions_.end()) return Misspoken("no regions " + regions);
  auto remote = mrd::RemoteRegionOf(found->second.front(), device);
  if (!remote.ok()) return remote.status();
  return mrd::EncodeRemoteRegion(*remote);
}

void ProbeClient::AcceptLoop(const mrd::Listener* listener, const std::string& announcement) {
  for (;;) {
    auto endpoint = listener->Accept(announcement);
    if (endpoint.ok()) {
      const std::lock_guard lock(endpoints_mutex_);
      endpoints_.push_back(std::move(*endpoint));
    } else if (absl::IsNotFound(endpoint.status()) || !client_->SessionStatus().ok()) {
      return;  // Closed.
    }
  }
}

Answer ProbeClient::Listen(const mrd::ListenOptions& options, const std::string& regions) {
  auto listener = client_->Listen(options);
  if (!listener.ok()) return listener.status();
  auto announcement = Announcement(regions, listener->info().device());
  if (!announcement.ok()) return announcement.status();
  listeners_.push_back(std::move(*listener));
  acceptors_.emplace_back([this, listening = &listeners_.back(), text = *announcement] {
    AcceptLoop(listening, text);
  });
  const mrd::v1::Endpoint& info = listeners_.back().info();
  return absl::StrCat("device=", info.device(), " port=", info.local_port());
}

Answer ProbeClient::Connect(const std::string& address, uint16_t port, const std::string& regions) {
  mrd::ConnectOptions options = {.address = address, .port = port};
  // The daemon takes the device from the route; a client with regions on one says which.
  auto announcement = Announcement(regions, "");
  if (!announcement.ok()) return announcement.status();
  options.private_data = *announcement;
  auto endpoint = client_->Connect(options);
  if (!endpoint.ok()) return endpoint.status();
  const auto remote = mrd::DecodeRemoteRegions(endpoint->peer_private_data());
  std::string text = absl::StrCat("device=", endpoint->info().device());
  if (!remote.empty()) {
    absl::StrAppend(&text, " remote_addr=", Hex(remote[0].addr), " rkey=", Hex(remote[0].rkey),
                    " length=", remote[0].length);
  }
  const std::lock_guard lock(endpoints_mutex_);
  endpoints_.push_back(std::move(*endpoint));
  return text;
}

Answer ProbeClient::AwaitConnections(uint64_t connected, uint64_t disconnected) {
  uint64_t found_connected = 0;
  uint64_t found_disconnected = 0;
  absl::Status listed;
  const bool found = Await([&] {
    auto endpoints = client_->ListEndpoints();
    listed = endpoints.status();
    if (!listed.ok()) return true;
    found_connected = found_disconnected = 0;
    for (const mrd::v1::Endpoint& endpoint : *endpoints) {
      if (endpoint.state() == mrd::v1::Endpoint::CONNECTED) ++found_connected;
      if (endpoint.state() == mrd::v1::Endpoint::DISCONNECTED) ++found_disconnected;
    }
    return found_connected == connected && found_disconnected == disconnected;
  });
  if (!listed.ok()) return listed;
  if (!found) {
    return absl::DeadlineExceededError(
        absl::StrCat(found_connected, " connected, ", found_disconnected, " disconnected"));
  }
  return "";
}

Answer ProbeClient::Disconnect() {
  std::vector<mrd::Endpoint> endpoints;
  {
    const std::lock_guard lock(endpoints_mutex_);
    endpoints.swap(endpoints_);
  }
  for (const mrd::Endpoint& endpoint : endpoints) {
    if (absl::Status status = endpoint.Disconnect(); !status.ok()) return status;
  }
  return absl::StrCat("ended=", endpoints.size());
}

// Children. ----------------------------------------------------------------------------------

Answer ProbeClient::Sleeper(unsigned seconds) {
  const std::string text = std::to_string(seconds);
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "fork");
  if (pid == 0) {
    // Only calls that a child of a threaded process may make.
    for (int fd = 0; fd < kMostFds; ++fd) fcntl(fd, F_SETFD, 0);
    execlp("sleep", "sleep", text.c_str(), nullptr);
    _exit(127);
  }
  return absl::StrCat("pid=", pid);
}

}  // namespace probe
