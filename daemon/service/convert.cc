#include "daemon/service/convert.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "daemon/broker/policy/text.h"
#include "mrd/v1/status.h"

namespace mrd::service {
namespace {

using fabric::Bit;

constexpr size_t kMostOnPage = 1000;
constexpr size_t kMostReasonBytes = 256;
// Any longer one is cut to what policy allows anyway.
constexpr std::chrono::hours kMostTtl{24 * 365 * 30};

uint64_t Mix(uint64_t hash, uint64_t more) {
  return (hash ^ more) * 0x9E3779B97F4A7C15 + (hash >> 32);
}

// Of the parameters of a request: two requests of one id must agree in them. 64 bits serve: a
// client could mistake only its own requests for one another. It is in the ledger, and a repeat may
// come to the next version: a parameter that is added there changes nothing where it is absent.
uint64_t Fingerprint(const broker::RegisterSpec& spec) {
  static_assert(std::has_unique_object_representations_v<broker::RangeSpec>);
  const std::hash<std::string_view> hash_of;
  uint64_t hash = hash_of({reinterpret_cast<const char*>(spec.ranges.data()),
                           spec.ranges.size() * sizeof(broker::RangeSpec)});
  for (const std::string& device : spec.devices) hash = Mix(hash, hash_of(device));
  hash = Mix(hash, spec.devices.size());
  hash = Mix(hash, static_cast<uint64_t>(spec.ttl.count()));
  hash = Mix(hash, hash_of(spec.domain));
  return Mix(hash, uint64_t{spec.access} << 3 | spec.newest_only << 2 | spec.all_devices << 1 |
                       spec.release_after);
}

}  // namespace

absl::StatusOr<fabric::AccessMask> FromProto(const v1::Access& access) {
  fabric::AccessMask mask = 0;
  switch (access.preset()) {
    case v1::Access::PRESET_UNSPECIFIED:
      break;
    case v1::Access::REG_MSGS:
      mask = Bit(v1::LOCAL_WRITE);
      break;
    case v1::Access::REG_READ:
      mask = Bit(v1::LOCAL_WRITE) | Bit(v1::REMOTE_READ);
      break;
    case v1::Access::REG_WRITE:
      mask = Bit(v1::LOCAL_WRITE) | Bit(v1::REMOTE_WRITE);
      break;
    default:
      return MakeError(v1::ACCESS_INVALID, absl::StrCat("unknown preset ", access.preset()),
                       {.advice = "Use REG_MSGS, REG_READ or REG_WRITE"});
  }
  for (const int flag : access.flags()) {
    if (flag <= v1::ACCESS_FLAG_UNSPECIFIED || !v1::AccessFlag_IsValid(flag)) {
      return MakeError(v1::ACCESS_INVALID, absl::StrCat("unknown access flag ", flag),
                       {.advice = "Use the flags of AccessFlag"});
    }
    mask |= Bit(static_cast<v1::AccessFlag>(flag));
  }
  return mask;
}

absl::StatusOr<broker::RegisterSpec> FromProto(const v1::RegisterRequest& request) {
  const auto ttl = WaitFrom(request.has_ttl(), "ttl", request.ttl(), kMostTtl);
  if (!ttl.ok()) return ttl.status();
  auto access = FromProto(request.access());
  if (!access.ok()) return access.status();
  broker::RegisterSpec spec;
  spec.request_id = request.request_id();
  spec.access = *access;
  spec.all_devices = request.all_devices();
  spec.release_after = request.release_after();
  if (request.has_ttl()) spec.ttl = *ttl;
  spec.domain = request.domain();
  spec.newest_only = request.newest_only();
  spec.devices.assign(request.devices().begin(), request.devices().end());
  spec.ranges.reserve(request.ranges_size());
  for (const v1::Range& range : request.ranges()) {
    spec.ranges.push_back({range.buffer_id(), range.offset(), range.length(), range.addr()});
  }
  if (!spec.request_id.empty()) spec.fingerprint = Fingerprint(spec);
  return spec;
}

absl::StatusOr<std::chrono::nanoseconds> WaitFrom(bool present, const char* field,
                                                  const google::protobuf::Duration& wait,
                                                  std::chrono::nanoseconds most) {
  if (!present) return most;
  if (wait.seconds() < 0 || wait.nanos() < 0 || wait.nanos() > 999999999) {
    return MakeError(v1::REQUEST_INVALID, absl::StrCat(field, " is not a duration from now on"),
                     {.advice = "Give seconds from 0 and nanos from 0 to 999,999,999"});
  }
  const std::chrono::seconds seconds(std::min<int64_t>(wait.seconds(), 1 << 30));
  return std::min<std::chrono::nanoseconds>(seconds + std::chrono::nanoseconds(wait.nanos()), most);
}

absl::Status CheckReason(const std::string& reason) {
  if (reason.size() <= kMostReasonBytes && policy::IsPrintable(reason)) return absl::OkStatus();
  return MakeError(v1::REQUEST_INVALID, "the reason is too long or not printable",
                   {.limit_name = "bytes of a reason",
                    .limit = kMostReasonBytes,
                    .used = reason.size(),
                    .advice = absl::StrCat("Use at most ", kMostReasonBytes,
                                           " bytes of UTF-8 without control characters")});
}

size_t PageSize(uint32_t asked) {
  return asked == 0 ? kMostOnPage : std::min<size_t>(asked, kMostOnPage);
}

void ToProto(std::chrono::system_clock::time_point time, google::protobuf::Timestamp* timestamp) {
  const auto since = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since);
  timestamp->set_seconds(seconds.count());
  timestamp->set_nanos(std::chrono::nanoseconds(since - seconds).count());
}

template <typename Message>
void AddFlags(fabric::AccessMask mask, Message* message) {
  for (int flag = v1::AccessFlag_MIN + 1; flag <= v1::AccessFlag_MAX; ++flag) {
    const auto each = static_cast<v1::AccessFlag>(flag);
    if ((mask & Bit(each)) != 0) message->add_access_flags(each);
  }
}

void ToProto(std::chrono::nanoseconds duration, google::protobuf::Duration* message) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(duration);
  message->set_seconds(seconds.count());
  message->set_nanos(static_cast<int32_t>((duration - seconds).count()));
}

void ToProto(const broker::LeaseView& view, v1::Lease* lease) {
  lease->set_lease_id(view.id);
  lease->set_buffer_id(view.buffer_id);
  lease->set_offset(view.offset);
  lease->set_length(view.length);
  lease->set_addr(view.addr);
  for (const broker::KeyView& each : view.keys) {
    v1::Key* key = lease->add_keys();
    key->set_device(each.device->name);
    key->set_generation(each.device->generation);
    key->set_lkey(each.lkey);
    key->set_rkey(each.rkey);
  }
  AddFlags(view.access, lease);
  if (view.domain) lease->set_domain(*view.domain);
  if (view.remaining) ToProto(*view.remaining, lease->mutable_remaining());
}

void ToProto(const broker::DomainView& view, v1::Domain* domain) {
  domain->set_name(view.name);
  domain->set_owner(view.owner);
  domain->set_group(view.group);
  domain->set_mode(view.mode);
}

void ToProto(const fabric::DeviceInfo& info, v1::Device* device) {
  device->set_name(info.name);
  device->set_transport(info.transport);
  device->set_state(info.active ? v1::Device::ACTIVE : v1::Device::DOWN);
  for (const std::string& address : info.addresses) device->add_addresses(address);
  device->set_endpoints(info.endpoints);
  device->set_any_address(info.any_address);
  device->set_max_region_bytes(info.max_region_bytes);
  device->set_max_regions(info.max_regions);
  AddFlags(info.access, device);
  device->set_generation(info.generation);
  ToProto(info.opened, device->mutable_opened_time());
}

void ToProto(const broker::SessionView& view, v1::Session* session) {
  session->set_session_id(view.id);
  session->set_name(view.name);
  session->set_pid(view.identity.pid);
  session->set_uid(view.identity.uid);
  session->set_gid(view.identity.gid);
  session->set_admin(view.identity.admin);
  ToProto(view.attached, session->mutable_attached_time());
  session->set_regions(view.held.regions);
  session->set_pinned_bytes(view.held.bytes);
  session->set_endpoints(view.held.endpoints);
  session->set_buffers(view.buffers);
  session->set_leases(view.leases);
  session->set_comm(view.identity.comm);
  session->set_death(view.identity.death);
  session->set_cgroup(view.identity.cgroup);
  session->set_rule(view.rule);
  session->set_command_line(view.command_line);
  session->set_unclaimed_buffers(view.unclaimed);
  session->set_calls(view.calls);
  session->set_renewals(view.renewals);
  session->set_lapses(view.lapses);
  session->set_ending(view.ending);
}

void ToProto(const broker::GenerationView& view, v1::Generation* generation) {
  generation->set_device(view.device->name);
  generation->set_generation(view.device->generation);
  generation->set_newest(view.newest);
  if (view.device->opened.time_since_epoch().count() > 0) {
    ToProto(view.device->opened, generation->mutable_opened_time());
  }
  generation->set_sessions(view.sessions);
  generation->set_domains(view.domains);
  generation->set_regions(view.regions);
  generation->set_endpoints(view.endpoints);
}

void ToProto(const broker::Outlook& outlook, v1::Survival* survival) {
  const auto set = [](const broker::Outlook::Fate& from, v1::Survival::Fate* fate) {
    fate->set_go_on(from.go_on);
    fate->set_end(from.end);
  };
  set(outlook.sessions, survival->mutable_sessions());
  set(outlook.regions, survival->mutable_regions());
  set(outlook.endpoints, survival->mutable_endpoints());
  for (const broker::GenerationView& view : outlook.old_generations) {
    ToProto(view, survival->add_old_generations());
  }
}

void ToProto(broker::ledger::Ledger& ledger, size_t awaited, v1::Store* store) {
  store->set_limit(ledger.store().limit());
  store->set_used(ledger.store().used());
  store->set_ledger_bytes(ledger.slots().bytes());
  store->set_sessions_awaited(awaited);
}

void ToProto(const broker::EndpointView& view, v1::Endpoint* endpoint) {
  endpoint->set_generation(view.info.generation);
  endpoint->set_survives(view.survives);
  endpoint->set_endpoint_id(view.id);
  endpoint->set_state(view.state);
  endpoint->set_device(view.info.device);
  endpoint->set_local_address(view.info.local_address);
  endpoint->set_local_port(view.info.local_port);
  endpoint->set_peer_address(view.info.peer_address);
  endpoint->set_peer_port(view.info.peer_port);
  endpoint->set_qp_num(view.info.qp_num);
}

void ToProto(const broker::DrainView& view, v1::Drain* drain) {
  ToProto(view.drained->since, drain->mutable_since());
  drain->set_reason(view.drained->reason);
  drain->set_sessions_left(view.sessions_left);
  if (!view.drained->deadline) return;
  const auto left = *view.drained->deadline - broker::DrainSwitch::Clock::now();
  ToProto(std::max<std::chrono::nanoseconds>(left, std::chrono::nanoseconds(0)),
          drain->mutable_remaining());
}

}  // namespace mrd::service
