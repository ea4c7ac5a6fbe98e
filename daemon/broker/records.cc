#include "daemon/broker/records.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "daemon/broker/endpoints.h"

namespace mrd::broker {
namespace {

namespace pb = ledger::pb;

void AddKeys(const Lease& lease, pb::Lease* record) {
  for (const HeldRegion& held : lease.regions) {
    const uint64_t generation = held.domain->generation();
    const std::string device = held.domain->device();
    pb::Key* const key = record->add_keys();
    key->set_device(device);
    key->set_generation(generation);
    key->set_handle(held.region->handle());
    key->set_pd(held.domain->handle());
    key->set_lkey(held.region->lkey());
    key->set_rkey(held.region->rkey());
  }
}

// In a record of before: keys that stay keep what another version has written of them.
void SetKeys(const Lease& lease, pb::Lease* record) {
  google::protobuf::RepeatedPtrField<pb::Key> before;
  before.Swap(record->mutable_keys());
  AddKeys(lease, record);
  for (pb::Key& key : *record->mutable_keys()) {
    const auto was = std::find_if(before.begin(), before.end(), [&key](const pb::Key& each) {
      return each.handle() == key.handle() && each.generation() == key.generation() &&
             each.device() == key.device();
    });
    if (was != before.end()) key.Swap(&*was);
  }
}

pb::Lease RecordOf(const Session& session, const Lease& lease, const NamedDomain* named) {
  pb::Lease record;
  const LeaseView& view = lease.view;
  record.set_id(view.id);
  record.set_session_id(session.id);
  record.set_buffer_id(view.buffer_id);
  record.set_offset(view.offset);
  record.set_length(view.length);
  record.set_addr(view.addr);
  record.set_access(view.access);
  record.set_ttl(static_cast<uint64_t>(lease.ttl.count()));
  AddKeys(lease, &record);
  if (named) {
    record.set_domain(*named->name);
    record.set_domain_id(named->id);
  }
  return record;
}

// Of a lease that is granted now: its ttl, if it has one, counts from then.
uint64_t StampOf(const Lease& lease) {
  if (lease.ttl.count() == 0) return 0;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

}  // namespace

pb::Session RecordOf(const Session& session) {
  pb::Session record;
  const Identity& who = session.identity;
  record.set_id(session.id);
  record.set_token(session.token);
  record.set_name(session.name);
  record.set_pid(who.pid);
  record.set_start_time(who.start_time);
  record.set_uid(who.uid);
  record.set_gid(who.gid);
  record.mutable_groups()->Add(who.groups.begin(), who.groups.end());
  record.set_cgroup(who.cgroup);
  record.set_comm(who.comm);
  record.set_death(who.death);
  record.set_attached(ledger::NanosSince1970(session.attached));
  return record;
}

pb::Membership RecordOf(const Session& session, const NamedDomain& domain) {
  pb::Membership record;
  record.set_session_id(session.id);
  record.set_domain_id(domain.id);
  record.set_name(*domain.name);
  record.set_owner(domain.owner);
  record.set_group(domain.group);
  record.set_mode(domain.mode);
  return record;
}

pb::Endpoint RecordOf(const Session& session, const Endpoint& endpoint, const NamedDomain* named) {
  pb::Endpoint record;
  const fabric::ConnectionInfo& info = endpoint.info;
  record.set_id(endpoint.id);
  record.set_session_id(session.id);
  record.set_device(info.device);
  record.set_generation(info.generation);
  record.set_local_address(info.local_address);
  record.set_local_port(info.local_port);
  if (named) {
    record.set_domain(*named->name);
    record.set_domain_id(named->id);
  }
  if (endpoint.listener) {
    record.set_listening(true);
    record.set_backlog(endpoint.backlog);
    return record;
  }
  const fabric::ConnectionHandles handles = endpoint.connection->handles();
  record.set_qp(handles.queue_pair);
  record.set_cq(handles.completion_queue);
  record.set_pd(handles.domain);
  record.set_qp_num(info.qp_num);
  record.set_peer_address(info.peer_address);
  record.set_peer_port(info.peer_port);
  return record;
}

absl::Status WriteDown(ledger::Ledger& ledger, const Session& session,
                       std::vector<std::unique_ptr<Lease>>& leases, const RequestRecord* request,
                       const NamedDomain* named, uint64_t call_id) {
  const bool alone = leases.size() == 1;
  pb::Call call;
  for (const auto& lease : leases) {
    pb::Lease record = RecordOf(session, *lease, named);
    if (!alone) {
      record.set_call(call_id);
      if (request) call.add_lease_ids(lease->view.id);
    } else if (request) {
      record.set_request_id(request->id);
      record.set_fingerprint(request->fingerprint);
    }
    for (const pb::Key& key : record.keys()) ledger.UsesHandle(key.handle());
    auto put = ledger.Put(record, StampOf(*lease));
    if (!put.ok()) return put.status();
    lease->written = std::make_unique<WrittenLease>();
    lease->written->record = *std::move(put);
  }
  if (alone) return absl::OkStatus();
  call.set_id(call_id);
  call.set_session_id(session.id);
  if (request) {
    call.set_request_id(request->id);
    call.set_fingerprint(request->fingerprint);
  }
  auto put = ledger.Put(call);
  if (!put.ok()) return put.status();
  const auto shared = std::make_shared<ledger::CallRecord>(ledger, *std::move(put));
  for (const auto& lease : leases) lease->written->call = shared;
  return absl::OkStatus();
}

absl::Status Rewrite(ledger::Ledger& ledger, Lease& lease) {
  pb::Lease record;
  if (!lease.written || !ledger.Read(lease.written->record, &record)) return absl::OkStatus();
  const uint64_t stamp = ledger.slots().stamp(lease.written->record.id());
  SetKeys(lease, &record);
  for (const pb::Key& key : record.keys()) ledger.UsesHandle(key.handle());
  record.set_revision(record.revision() + 1);
  auto put = ledger.Put(record, stamp);
  if (!put.ok()) {
    lease.written = nullptr;
    return put.status();
  }
  lease.written->record = *std::move(put);  // The one before is erased by its end.
  return absl::OkStatus();
}

}  // namespace mrd::broker
