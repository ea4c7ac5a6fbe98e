#include "tests/e2e/walker.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace mrd::e2e {
namespace {

constexpr uint64_t kUnknownId = UINT64_MAX - 1;
constexpr const char* kDevices[] = {"fake0", "fake1"};

// What may be refused by what others do at the same time.
const std::set<v1::Reason> kCrowded = {v1::QUOTA_REGIONS, v1::QUOTA_BYTES, v1::DEVICE_LIMIT,
                                       v1::DEVICE_ERROR, v1::MEMLOCK};

}  // namespace

Walker::Walker(const std::string& dir, unsigned seed) : dir_(dir), random_(seed) {
  for (const uint64_t pages : {1, 4, 16, 64}) memories_.emplace_back(pages * kPage);
  memories_.emplace_back(kPage, MemoryOptions{.sealed = false});
  Attach();
}

void Walker::Attach() {
  buffers_.clear();
  leases_.clear();
  endpoints_.clear();
  joined_.clear();
  private_devices_.clear();
  client_ = std::make_unique<RawClient>(dir_, RawClient::Options{.name = "walker"});
}

void Walker::Walk(int steps) {
  for (int i = 0; i < steps; ++i, ++walked_.steps) {
    Step();
    TakeEvents(milliseconds(0));
  }
}

void Walker::Step() {
  const int kind = Any(1000);
  if (kind < 3) {
    ++walked_.hang_ups;
    Attach();
  } else if (kind < 100) {
    Pass();
  } else if (kind < 150) {
    Release();
  } else if (kind < 470) {
    Register();
  } else if (kind < 570) {
    RegisterBadly();
  } else if (kind < 800) {
    Deregister();
  } else if (kind < 860) {
    Renew();
  } else if (kind < 880) {
    List();
  } else if (kind < 930) {
    Join();
  } else if (kind < 950) {
    Leave();
  } else if (kind < 975) {
    Listen();
  } else {
    Disconnect();
  }
}

template <typename Answer>
void Walker::Refused(const Answer& answer, const std::set<v1::Reason>& reasons) {
  Require(!answer.ok() && reasons.contains(answer.reason()), "a refusal: " + answer.text());
  ++walked_.refused;
  walked_.quotas += answer.reason() == v1::QUOTA_REGIONS || answer.reason() == v1::QUOTA_BYTES ||
                    answer.reason() == v1::QUOTA_ENDPOINTS;
  walked_.faults += answer.reason() == v1::DEVICE_LIMIT || answer.reason() == v1::DEVICE_ERROR ||
                    answer.reason() == v1::MEMLOCK;
}

void Walker::Pass() {
  if (buffers_.size() >= 12) return Release();
  const Memory& memory = memories_[Any(static_cast<int>(memories_.size()) - 1)];
  buffers_[client_->Pass(memory)] = &memory;
}

void Walker::Release() {
  if (buffers_.empty()) return Pass();
  const uint64_t id = AnyKey(buffers_);
  if (Chance(20)) return Refused(client_->Release({id, kUnknownId}), {v1::BUFFER_UNKNOWN});
  const auto released = client_->Release({id});
  Require(released.ok(), "release: " + released.text());
  buffers_.erase(id);
}

v1::RegisterRequest Walker::AnyRequest() {
  v1::RegisterRequest request;
  request.mutable_access()->set_preset(v1::Access::REG_WRITE);
  for (int ranges = Chance(80) ? 1 : 1 + Any(6); ranges > 0; --ranges) {
    const uint64_t id = AnyKey(buffers_);
    const Memory& memory = *buffers_.at(id);
    const int pages = static_cast<int>(memory.size() / kPage);
    const uint64_t first = Any(pages);
    const uint64_t length = kPage * (1 + Any(pages - static_cast<int>(first)));
    // In a page here and there: what is counted is whole pages all the same.
    const uint64_t shift = Chance(50) ? 0 : 8;
    AddRange(&request, id, memory.addr() + first * kPage + shift, length - 2 * shift,
             first * kPage + shift);
  }
  const int where = Any(10);
  if (where < 3) request.add_devices(kDevices[where % 2]);
  if (where == 3) request.set_all_devices(true);
  if (where == 4) {
    for (const char* device : kDevices) request.add_devices(device);
  }
  if (!joined_.empty() && Chance(40)) {
    request.set_domain(*std::next(joined_.begin(), Any(static_cast<int>(joined_.size()))));
  }
  if (Chance(25)) request.mutable_ttl()->set_nanos(1000000 * (1 + Any(100)));
  if (Chance(10)) request.mutable_ttl()->set_seconds(3600);
  if (Chance(30)) request.set_request_id("request " + std::to_string(++requests_));
  return request;
}

void Walker::Note(const v1::RegisterRequest& request, const v1::RegisterResponse& made) {
  Require(made.leases_size() == request.ranges_size(), "a lease for each range");
  for (const v1::Lease& lease : made.leases()) {
    const uint64_t pages = (lease.addr() % kPage + lease.length() + kPage - 1) / kPage;
    const uint64_t keys = lease.keys_size();
    const bool brief = request.has_ttl() && request.ttl().seconds() == 0;
    const bool fresh = leases_
                           .emplace(lease.lease_id(), Lease{keys, keys * pages * kPage, brief,
                                                            std::string(lease.domain())})
                           .second;
    Require(fresh && lease.domain() == request.domain(), "a lease of its own in the domain asked");
    if (!lease.domain().empty()) continue;
    for (const v1::Key& key : lease.keys()) private_devices_.insert(key.device());
  }
}

void Walker::Register() {
  if (buffers_.empty()) return Pass();
  if (leases_.size() > 80) return Deregister();
  v1::RegisterRequest request = AnyRequest();
  request.set_release_after(Chance(5));
  const auto made = client_->Register(request);
  if (!made.ok()) return Refused(made, kCrowded);
  ++walked_.registered;
  Note(request, made.response);
  if (request.release_after()) {
    for (const v1::Range& range : request.ranges()) buffers_.erase(range.buffer_id());
  }
  if (!request.request_id().empty()) Repeat(request, made.response);
}

void Walker::Repeat(const v1::RegisterRequest& request, const v1::RegisterResponse& first) {
  const auto again = client_->Register(request);
  Require(again.ok() && again.response.leases_size() == first.leases_size(),
          "a repeat: " + again.text());
  for (int i = 0; i < first.leases_size(); ++i) {
    Require(again.response.leases(i).lease_id() == first.leases(i).lease_id(), "the same leases");
  }
  v1::RegisterRequest other = request;
  other.mutable_ranges(0)->set_length(1);
  Refused(client_->Register(other), {v1::REQUEST_ID_REUSED});
}

void Walker::RegisterBadly() {
  if (buffers_.empty()) return Pass();
  v1::RegisterRequest request = AnyRequest();
  // The last one: what comes before it is to be rolled back, or not begun.
  v1::Range* const last = request.mutable_ranges(request.ranges_size() - 1);
  switch (Any(7)) {
    case 0:
      last->set_buffer_id(kUnknownId);
      return Refused(client_->Register(request), {v1::BUFFER_UNKNOWN});
    case 1:
      last->set_length(UINT64_MAX - last->offset());
      return Refused(client_->Register(request), {v1::OUT_OF_RANGE, v1::INVALID_LENGTH});
    case 2:
      last->set_length(0);
      return Refused(client_->Register(request), {v1::INVALID_LENGTH});
    case 3:
      last->set_addr(last->addr() + 1);
      return Refused(client_->Register(request), {v1::MISALIGNED});
    case 4:
      request.set_all_devices(false);
      request.add_devices("no such device");
      return Refused(client_->Register(request),
                     {v1::DEVICE_UNKNOWN, v1::QUOTA_REGIONS, v1::QUOTA_BYTES});
    case 5:
      request.set_domain("never-opened");
      return Refused(client_->Register(request), {v1::DOMAIN_UNKNOWN});
    default: {
      const Memory& unsealed = memories_.back();
      const uint64_t id = client_->Pass(unsealed);
      Refused(client_->Register(RequestFor(id, unsealed)), {v1::NOT_SEALED});
      Require(client_->Release({id}).ok(), "release of an unsealed buffer");
    }
  }
}

void Walker::Deregister() {
  if (leases_.empty()) return Register();
  std::set<uint64_t> ids;
  for (int i = Chance(70) ? 1 : 1 + Any(20); i > 0; --i) {
    ids.insert(AnyKey(leases_));
  }
  std::vector<uint64_t> named(ids.begin(), ids.end());
  if (Chance(10)) {
    named.push_back(Chance(50) ? kUnknownId : named.front());
    return Refused(client_->Deregister(named), {v1::LEASE_UNKNOWN, v1::BUSY});
  }
  const auto ended = client_->Deregister(named);
  if (!ended.ok()) {
    // One lapses meanwhile, or is revoked: all stand that do not.
    Refused(ended, {v1::LEASE_UNKNOWN, v1::BUSY});
    return AwaitEndOfOne(ids);
  }
  for (const uint64_t id : named) leases_.erase(id);
}

void Walker::AwaitEndOfOne(const std::set<uint64_t>& ids) {
  const auto deadline = Clock::now() + kPatience;
  while (
      std::all_of(ids.begin(), ids.end(), [this](uint64_t id) { return leases_.contains(id); })) {
    Require(Clock::now() < deadline, "a lease that is no more was told of");
    TakeEvents(milliseconds(20));
  }
}

void Walker::Renew() {
  if (leases_.empty() || Chance(40)) {
    const auto renewed = client_->Renew();
    Require(renewed.ok() && renewed.response.renewed() <= leases_.size(),
            "renew all: " + renewed.text());
    return;
  }
  const uint64_t id = AnyKey(leases_);
  if (Chance(20)) return Refused(client_->Renew({id, kUnknownId}), {v1::LEASE_UNKNOWN, v1::BUSY});
  const auto renewed = client_->Renew({id});
  if (!renewed.ok()) {
    Refused(renewed, {v1::LEASE_UNKNOWN, v1::BUSY});
    return AwaitEndOfOne({id});
  }
  Require(renewed.response.renewed() == 1, "one was renewed");
}

std::set<uint64_t> Walker::Listed() {
  std::set<uint64_t> listed;
  for (uint64_t after = 0;;) {
    const auto page = client_->ListLeases(after, 50);
    Require(page.ok(), "list: " + page.text());
    for (const v1::Lease& lease : page.response.leases()) listed.insert(lease.lease_id());
    after = page.response.next_after_lease_id();
    if (after == 0) return listed;
  }
}

void Walker::List() {
  std::set<uint64_t> listed = Listed();
  std::set<uint64_t> missing;
  for (const auto& [id, lease] : leases_) {
    if (listed.erase(id) == 0) missing.insert(id);
  }
  Require(listed.empty(), "none is listed that is not held");
  for (const uint64_t id : missing) AwaitEndOfOne({id});
}

void Walker::Join() {
  const std::string name = "domain-" + std::to_string(Any(5));
  const auto opened = client_->OpenDomain(name);
  Require(opened.ok(), "open: " + opened.text());
  joined_.insert(name);
}

void Walker::Leave() {
  if (joined_.empty()) return Refused(client_->CloseDomain("domain-0"), {v1::DOMAIN_UNKNOWN});
  const std::string name = *std::next(joined_.begin(), Any(static_cast<int>(joined_.size())));
  const auto closed = client_->CloseDomain(name);
  Require(closed.ok(), "close: " + closed.text());
  joined_.erase(name);
}

void Walker::Listen() {
  if (endpoints_.size() >= 5) return Disconnect();
  const auto made = client_->Listen("10.99.0.1");
  if (!made.ok()) return Refused(made, {v1::QUOTA_ENDPOINTS});
  endpoints_.insert(made.response.endpoint().endpoint_id());
}

void Walker::Disconnect() {
  if (endpoints_.empty()) return Refused(client_->Disconnect(kUnknownId), {v1::ENDPOINT_UNKNOWN});
  const uint64_t id = *std::next(endpoints_.begin(), Any(static_cast<int>(endpoints_.size())));
  const auto ended = client_->Disconnect(id);
  Require(ended.ok(), "disconnect: " + ended.text());
  endpoints_.erase(id);
}

void Walker::TakeEvents(milliseconds wait) {
  while (const auto packet = client_->attach().Receive(wait)) {
    wait = milliseconds(0);
    Require(packet->has_event(), "an event");
    const v1::AttachEvent& event = packet->event();
    if (event.kind() == v1::AttachEvent::EVENTS_LOST) {
      const std::set<uint64_t> listed = Listed();
      std::erase_if(leases_, [&](const auto& each) { return !listed.contains(each.first); });
      continue;
    }
    const bool lapsed = event.kind() == v1::AttachEvent::LAPSED;
    Require(lapsed || event.kind() == v1::AttachEvent::REVOKED,
            "an event of lapses or revocations");
    for (const uint64_t id : event.lease_ids()) {
      const auto found = leases_.find(id);
      if (found == leases_.end()) continue;  // Told of by a list after events were lost.
      Require(found->second.brief || !lapsed, "a lease that lasts has lapsed");
      leases_.erase(found);
      ++(lapsed ? walked_.lapsed : walked_.revoked);
    }
  }
}

void Walker::Settle() {
  const auto deadline = Clock::now() + kPatience;
  const auto brief = [](const auto& each) { return each.second.brief; };
  while (std::any_of(leases_.begin(), leases_.end(), brief)) {
    Require(Clock::now() < deadline, "what is not renewed lapses, and is told of");
    TakeEvents(milliseconds(100));
  }
  List();
}

void Walker::LeaveDomains() {
  std::vector<uint64_t> ids;
  for (const auto& [id, lease] : leases_) {
    if (!lease.domain.empty()) ids.push_back(id);
  }
  if (!ids.empty()) {
    const auto ended = client_->Deregister(ids);
    Require(ended.ok(), "deregister: " + ended.text());
    for (const uint64_t id : ids) leases_.erase(id);
  }
  for (const std::string& name : std::exchange(joined_, {})) {
    Require(client_->CloseDomain(name).ok(), "close");
  }
}

Held Walker::held() const {
  Held held{.session = client_->session_id(),
            .leases = leases_.size(),
            .buffers = buffers_.size(),
            .endpoints = endpoints_.size(),
            .private_domains = private_devices_.size()};
  for (const auto& [id, lease] : leases_) {
    held.regions += lease.regions;
    held.bytes += lease.bytes;
    if (!lease.domain.empty()) held.regions_in_named += lease.regions;
  }
  return held;
}

}  // namespace mrd::e2e
