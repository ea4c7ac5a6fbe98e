// Adoption's part of leases, with the domains that they lie in and the requests that made them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/broker/adoption.h"

namespace mrd::broker {
namespace {

namespace pb = ledger::pb;
using Clock = std::chrono::steady_clock;

// The clock goes on over a restart of the process, and not beyond now.
Clock::time_point SteadyTime(uint64_t nanos, Clock::time_point now) {
  const auto limit =
      static_cast<uint64_t>(std::chrono::nanoseconds(now.time_since_epoch()).count());
  return Clock::time_point(std::chrono::nanoseconds(std::min(nanos, limit)));
}

}  // namespace

absl::Status Adoption::AdoptRegions(const SessionRef& session, const pb::Lease& record,
                                    Lease* lease) {
  for (const pb::Key& key : record.keys()) {
    Device* const device = DeviceOf(key.device(), key.generation());
    if (!device) continue;
    const auto facts = device->kernels->Query(key.handle());
    // The handle may be another region's by now: its keys tell.
    if (!facts.ok() || facts->rkey != key.rkey() || facts->lkey != key.lkey() ||
        facts->length != record.length() || facts->iova != record.addr()) {
      continue;
    }
    if (!device->regions.insert(key.handle()).second) {
      return Contradicts(absl::StrCat("region ", key.handle(), " is under two leases"));
    }
    auto domain = ClaimDomain(*device, key.pd(), session, record.domain_id());
    if (!domain) {
      return Contradicts(absl::StrCat("protection domain ", key.pd(), " has two owners"));
    }
    lease->regions.push_back({std::move(domain), nullptr,
                              device->kernels->AdoptRegion(key.handle(), key.lkey(), key.rkey())});
    // The newest of a device first; AddKeys has them written down in the order that they came.
    auto& keys = lease->view.keys;
    const auto place = std::find_if(keys.begin(), keys.end(), [&key](const KeyView& each) {
      return each.device->name == key.device() && each.device->generation < key.generation();
    });
    keys.insert(place, {device->info, key.lkey(), key.rkey()});
  }
  return absl::OkStatus();
}

absl::Status Adoption::ReadLeases() {
  struct Found {
    ledger::Record entry;
    pb::Lease record;
  };
  std::map<uint64_t, Found> found;
  Each<pb::Lease>(ledger::Kind::kLease, [&found](ledger::Record& entry, const pb::Lease& record) {
    Found& known = found[record.id()];
    if (known.entry && record.revision() <= known.record.revision()) return;
    std::swap(known.entry, entry);  // The other one counts no more.
    known.record = record;
  });
  const auto now = Clock::now();
  for (auto& [lease_id, one] : found) {
    ledger::Record& entry = one.entry;
    const pb::Lease& record = one.record;
    const uint64_t stamp = ledger_.slots().stamp(entry.id());
    const SessionRef session = SessionOf(record.session_id());
    const bool committed = record.call() == 0 || calls_.count(record.call()) != 0;
    if (!session || !committed) continue;
    auto lease = std::make_unique<Lease>();
    LeaseView& view = lease->view;
    view.id = record.id();
    view.buffer_id = record.buffer_id();
    view.offset = record.offset();
    view.length = record.length();
    view.addr = record.addr();
    view.access = record.access();
    if (!record.domain().empty()) {
      const auto named = named_.find(record.domain_id());
      view.domain = named != named_.end() ? named->second->name
                                          : std::make_shared<const std::string>(record.domain());
    }
    if (auto adopted = AdoptRegions(session, record, lease.get()); !adopted.ok()) return adopted;
    if (lease->regions.empty()) continue;
    lease->written = std::make_unique<WrittenLease>();
    lease->written->record = std::move(entry);
    lease->ttl = std::chrono::nanoseconds(record.ttl());
    if (record.call() != 0) lease->written->call = call_records_[record.call()];
    counts_.regions += lease->regions.size();
    MutexLock lock(session->mutex);
    session->held += lease->booked();
    if (lease->ttl.count() > 0) {
      view.remaining = lease->ttl;
      const uint64_t renewed = std::max(stamp, ledger_.slots().stamp(session->record.id()));
      session->expiries.Add(*lease, SteadyTime(renewed, now));
    }
    session->leases.emplace(lease_id, std::move(lease));
    if (record.call() == 0 && !record.request_id().empty()) {
      Remember(session, record.request_id(), record.fingerprint(), {lease_id}, nullptr);
    }
  }
  for (const auto& [id, call] : calls_) {
    const SessionRef session = SessionOf(call.session_id());
    if (!session || call.request_id().empty()) continue;
    MutexLock lock(session->mutex);
    Remember(session, call.request_id(), call.fingerprint(),
             {call.lease_ids().begin(), call.lease_ids().end()}, call_records_[id]);
  }
  call_records_.clear();  // Those whose leases have all ended go.
  return absl::OkStatus();
}

void Adoption::Remember(const SessionRef& session, const std::string& request_id,
                        uint64_t fingerprint, const std::vector<uint64_t>& lease_ids,
                        const std::shared_ptr<ledger::CallRecord>& call) {
  RequestLog& requests = session->requests;
  bool lives = false;
  for (const uint64_t id : lease_ids) lives |= session->leases.contains(id);
  if (!lives || requests.Find(request_id)) return;
  RequestRecord& request = *requests.Begin(request_id, fingerprint);
  LeaseViews answer;
  for (const uint64_t id : lease_ids) answer.emplace_back().id = id;
  requests.Answer(request, answer, call);
  for (const LeaseView& view : answer) {
    const auto lease = session->leases.find(view.id);
    if (lease != session->leases.end()) {
      lease->second->request = &request;
    } else {
      requests.LeaseTaken(request, view);
      requests.LeaseEnded(request);
    }
  }
}

}  // namespace mrd::broker
