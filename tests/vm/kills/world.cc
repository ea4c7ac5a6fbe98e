#include "tests/vm/kills/world.h"

#include <errno.h>
#include <signal.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace kills {
namespace {

constexpr uint64_t kPage = 4096;
// How long a session is kept whose client was never told of it, and some more.
constexpr int kAwaitedSeconds = 15;

absl::Status Differs(const std::string& what, const std::vector<Key>& a, const std::string& in_a,
                     const std::vector<Key>& b, const std::string& in_b) {
  std::string text;
  const auto add = [&text](const std::vector<Key>& some, const std::vector<Key>& others,
                           const std::string& where) {
    std::vector<Key> alone;
    std::set_difference(some.begin(), some.end(), others.begin(), others.end(),
                        std::back_inserter(alone));
    for (const Key& key : alone) {
      absl::StrAppendFormat(&text, "; only %s: %s lkey 0x%x rkey 0x%x 0x%x+%d", where, key.device,
                            key.lkey, key.rkey, key.addr, key.length);
    }
  };
  add(a, b, in_a);
  add(b, a, in_b);
  return absl::InternalError(absl::StrCat(what, text));
}

uint64_t Pinned(const std::vector<Key>& keys) {
  uint64_t bytes = 0;
  for (const Key& key : keys) {
    bytes += (key.addr % kPage + key.length + kPage - 1) / kPage * kPage;
  }
  return bytes;
}

// What the clients believe, and which of it they were told has ended.
absl::Status CompareClients(const std::list<Holder>& holders,
                            const std::vector<mrd::v1::HeldLease>& leases, bool may_end) {
  std::map<uint64_t, std::vector<Key>> books;
  for (const auto& held : leases) {
    for (const auto& key : held.lease().keys()) {
      books[held.lease().lease_id()].push_back(
          {key.device(), key.lkey(), key.rkey(), held.lease().addr(), held.lease().length()});
    }
  }
  for (const Holder& holder : holders) {
    const std::lock_guard lock(holder.told->mutex);
    if (holder.told->gone && !may_end) return absl::InternalError("a session was lost");
    for (const mrd::Region& region : holder.regions) {
      if (!region) continue;
      const auto found = books.find(region.lease_id());
      if (found == books.end()) {
        const bool told = holder.told->gone || holder.told->lost > 0 ||
                          holder.told->ended.count(region.lease_id()) != 0;
        if (may_end && told) continue;
        return absl::InternalError(absl::StrCat("lease ", region.lease_id(), " is lost",
                                                may_end ? ", and its client was not told" : ""));
      }
      std::vector<Key> keys;
      for (const mrd::RegionKey& key : region.keys()) {
        keys.push_back({key.device, key.lkey, key.rkey, region.addr(), region.length()});
      }
      std::sort(keys.begin(), keys.end());
      std::sort(found->second.begin(), found->second.end());
      if (keys != found->second) {
        return Differs(absl::StrCat("lease ", region.lease_id(), " has other keys"), keys,
                       "the client", found->second, "the books");
      }
      books.erase(found);
    }
  }
  if (books.empty()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("lease ", books.begin()->first, " is in the books, and no client has it"));
}

}  // namespace

World::World(dying::Control& control, std::map<std::string, std::string> addresses,
             std::chrono::milliseconds second)
    : control_(control), addresses_(std::move(addresses)), second_(second) {}

absl::StatusOr<Holder> World::Attach(bool renew) {
  Holder holder;
  mrd::AttachOptions options;
  options.name = "kills";
  options.renew = renew;
  options.on_loss = mrd::OnLoss::kTell;
  options.on_event = [told = holder.told](const mrd::v1::AttachEvent& event) {
    const std::lock_guard lock(told->mutex);
    told->ended.insert(event.lease_ids().begin(), event.lease_ids().end());
    told->lost += event.kind() == mrd::v1::AttachEvent::EVENTS_LOST;
  };
  options.on_lost = [told = holder.told](const absl::Status&) {
    const std::lock_guard lock(told->mutex);
    told->gone = true;
  };
  auto client = mrd::Client::Attach(std::move(options));
  if (!client.ok()) return client.status();
  holder.client = *std::move(client);
  auto buffer = holder.client->CreateBuffer(64 << 10);
  if (!buffer.ok()) return buffer.status();
  holder.buffers.push_back(*std::move(buffer));
  return holder;
}

absl::StatusOr<mrd::Client*> World::Admin() {
  const uint64_t start = control_.starts;
  if (!admin_ || admin_of_ != start || !admin_->SessionStatus().ok()) {
    admin_.reset();
    mrd::AttachOptions options;
    options.name = "kills";
    options.admin = true;
    options.on_loss = mrd::OnLoss::kTell;
    auto client = mrd::Client::Attach(std::move(options));
    if (!client.ok()) return client.status();
    admin_ = *std::move(client);
    admin_of_ = start;
  }
  return &*admin_;
}

absl::Status World::Kill() {
  const uint64_t before = control_.starts;
  if (kill(control_.pid, SIGKILL) != 0) return absl::ErrnoToStatus(errno, "kill");
  return Await([&]() -> absl::Status {
    if (control_.starts == before) return absl::UnavailableError("no other daemon was started");
    return Admin().status();
  });
}

absl::Status World::Agree(const std::list<Holder>& holders, bool may_end) {
  return Await([&] { return LookAgree(holders, may_end); });
}

absl::Status World::LookAgree(const std::list<Holder>& holders, bool may_end) {
  auto admin = Admin();
  if (!admin.ok()) return admin.status();
  auto kernel = LookAtKernel(control_.pid);
  if (!kernel.ok()) return kernel.status();
  auto leases = (*admin)->ListAllLeases();
  if (!leases.ok()) return leases.status();
  auto endpoints = (*admin)->ListAllEndpoints();
  if (!endpoints.ok()) return endpoints.status();
  auto status = (*admin)->GetStatus();
  if (!status.ok()) return status.status();

  std::vector<Key> books;
  for (const auto& held : *leases) {
    for (const auto& key : held.lease().keys()) {
      books.push_back(
          {key.device(), key.lkey(), key.rkey(), held.lease().addr(), held.lease().length()});
    }
  }
  std::sort(books.begin(), books.end());
  if (books != kernel->keys) {
    return Differs("the books do not equal the kernel", books, "the books", kernel->keys,
                   "the kernel");
  }
  std::map<std::string, uint64_t> connections;
  for (const auto& held : *endpoints) {
    if (held.endpoint().qp_num() != 0) ++connections[held.endpoint().device()];
  }
  for (const auto& [device, counts] : kernel->devices) {
    const uint64_t listed = connections[device];
    if (counts.queue_pairs == listed && counts.completion_queues == listed) continue;
    return absl::InternalError(absl::StrFormat(
        "%s: the books list %d connections, the kernel has %d queue pairs and %d completion queues",
        device, listed, counts.queue_pairs, counts.completion_queues));
  }
  const mrd::v1::Totals& totals = status->totals();
  if (totals.regions() != books.size() || totals.pinned_bytes() != Pinned(books) ||
      totals.endpoints() != endpoints->size()) {
    return absl::InternalError(absl::StrFormat(
        "the accounts have %d regions of %d bytes and %d endpoints, the books %d of %d and %d",
        totals.regions(), totals.pinned_bytes(), totals.endpoints(), books.size(), Pinned(books),
        endpoints->size()));
  }
  return CompareClients(holders, *leases, may_end);
}

absl::Status World::AtRest() {
  return Await([this] { return LookAtRest(); }, kAwaitedSeconds);
}

absl::Status World::LookAtRest() {
  if (absl::Status agrees = LookAgree({}, false); !agrees.ok()) return agrees;
  auto admin = Admin();
  if (!admin.ok()) return admin.status();
  auto domains = (*admin)->ListAllDomains();
  if (!domains.ok()) return domains.status();
  if (!domains->empty()) return absl::InternalError("a named domain is left");
  auto endpoints = (*admin)->ListAllEndpoints();
  if (!endpoints.ok()) return endpoints.status();
  if (!endpoints->empty()) return absl::InternalError("an endpoint is left");
  auto sessions = (*admin)->ListSessions();
  if (!sessions.ok()) return sessions.status();
  if (sessions->size() != 1) return absl::InternalError("a session is left");
  auto generations = (*admin)->ListGenerations();
  if (!generations.ok()) return generations.status();
  for (const auto& generation : generations->generations()) {
    if (!generation.newest()) return absl::InternalError("an old generation is left");
  }
  // The ledger, and of each device the newest opening, where something was made in it.
  if (generations->store().used() > 1 + addresses_.size()) {
    return absl::InternalError(
        absl::StrCat("the store has ", generations->store().used(), " descriptors"));
  }
  auto kernel = LookAtKernel(control_.pid);
  if (!kernel.ok()) return kernel.status();
  for (const auto& [device, counts] : kernel->devices) {
    if (counts.contexts <= 1 && counts.domains <= 1) continue;
    return absl::InternalError(absl::StrCat(device, ": ", counts.contexts, " contexts with ",
                                            counts.domains, " domains are left"));
  }
  return absl::OkStatus();
}

}  // namespace kills
