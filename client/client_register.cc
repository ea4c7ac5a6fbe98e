// The part of Client that registers and deregisters: the hot path. One request and one answer on an
// arena, no lock, and no copy but theirs.
#include <google/protobuf/arena.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "client/buffer_state.h"
#include "client/client.h"
#include "client/local_error.h"
#include "mrd/v1/status.h"

namespace mrd {
namespace {

using internal::BufferState;

}  // namespace

absl::StatusOr<std::vector<Region>> Client::Register(const RegisterOptions& options,
                                                     std::span<const Range> ranges) const {
  std::vector<Region> regions(ranges.size());
  absl::Status status = RegisterInto(options, ranges, regions.data());
  if (!status.ok()) return status;
  return regions;
}

absl::StatusOr<Region> Client::RegMsgs(const Range& range) const {
  return RegisterOne(v1::Access::REG_MSGS, range);
}

absl::StatusOr<Region> Client::RegRead(const Range& range) const {
  return RegisterOne(v1::Access::REG_READ, range);
}

absl::StatusOr<Region> Client::RegWrite(const Range& range) const {
  return RegisterOne(v1::Access::REG_WRITE, range);
}

absl::StatusOr<Region> Client::RegisterOne(v1::Access::Preset preset, const Range& range) const {
  RegisterOptions options;
  options.preset = preset;
  Region region;
  absl::Status status = RegisterInto(options, std::span(&range, 1), &region);
  if (!status.ok()) return status;
  return region;
}

absl::Status Client::RegisterInto(const RegisterOptions& options, std::span<const Range> ranges,
                                  Region* regions) const {
  if (absl::Status usable = SessionStatus(); !usable.ok()) return usable;
  // Most calls have one range, or many of one buffer.
  absl::InlinedVector<BufferState*, 4> buffers;
  for (const Range& range : ranges) {
    BufferState* const buffer = range.buffer->state_.get();
    if (buffer == nullptr || buffer->session() != session_) {
      return internal::LocalError(absl::StatusCode::kInvalidArgument,
                                  "a range's buffer was moved from or belongs to another session",
                                  0, "Register a buffer with the client that made it.");
    }
    if (buffers.empty() || buffers.back() != buffer) buffers.push_back(buffer);
  }
  if (absl::Status passed = BufferState::PassAll(*session_, {buffers.data(), buffers.size()});
      !passed.ok()) {
    return passed;
  }

  // Enough for a small call; a larger one goes on on the heap.
  alignas(8) char block[4096];
  google::protobuf::ArenaOptions arena_options;
  arena_options.initial_block = block;
  arena_options.initial_block_size = sizeof(block);
  google::protobuf::Arena arena(arena_options);
  auto* request = google::protobuf::Arena::CreateMessage<v1::RegisterRequest>(&arena);
  auto* response = google::protobuf::Arena::CreateMessage<v1::RegisterResponse>(&arena);

  request->set_request_id(session_->NewRequestId());
  request->mutable_ranges()->Reserve(static_cast<int>(ranges.size()));
  for (const Range& range : ranges) {
    const BufferState& buffer = *range.buffer->state_;
    v1::Range* out = request->add_ranges();
    out->set_buffer_id(buffer.id());
    // Sums that overflow wrap to ranges that the daemon refuses, as it does all that lie outside.
    out->set_offset(buffer.file_offset() + range.offset);
    out->set_length(range.length);
    out->set_addr(range.buffer->addr() + range.offset);
  }
  for (const std::string& device : options.devices) request->add_devices(device);
  request->set_all_devices(options.all_devices);
  request->mutable_access()->set_preset(options.preset);
  for (const v1::AccessFlag flag : options.flags) request->mutable_access()->add_flags(flag);
  request->set_release_after(options.release_after);
  request->set_domain(options.domain);
  if (options.ttl.count() != 0) {
    *request->mutable_ttl() =
        google::protobuf::util::TimeUtil::NanosecondsToDuration(options.ttl.count());
  }

  const auto timeout = options.timeout.count() > 0 ? options.timeout : session_->call_timeout();
  absl::Status status = session_->rpc().Register(*request, response, timeout, options.on_progress);
  if (ReasonOf(status) == v1::QUOTA_BUFFERS) {
    // The daemon remembers that it did not take one of them: passed again, it may.
    for (BufferState* buffer : buffers) buffer->Release().IgnoreError();
  }
  if (!status.ok()) return status;
  if (options.release_after) {
    for (BufferState* buffer : buffers) buffer->Forget();
  }
  if (response->leases_size() != static_cast<int>(ranges.size())) {
    return absl::InternalError("the daemon answered Register with " +
                               std::to_string(response->leases_size()) + " leases for " +
                               std::to_string(ranges.size()) + " ranges");
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    const v1::Lease& lease = response->leases(static_cast<int>(i));
    Region& region = regions[i];
    region.buffer_ = ranges[i].buffer->state_;
    region.lease_id_ = lease.lease_id();
    region.addr_ = lease.addr();
    region.length_ = lease.length();
    if (lease.has_remaining()) {
      region.ttl_ = std::chrono::seconds(lease.remaining().seconds()) +
                    std::chrono::nanoseconds(lease.remaining().nanos());
    }
    region.keys_.reserve(lease.keys_size());
    for (const v1::Key& key : lease.keys()) {
      region.keys_.push_back({key.device(), key.generation(), key.lkey(), key.rkey()});
    }
  }
  if (!ranges.empty() && regions[0].ttl_.count() > 0) session_->Granted(regions[0].ttl_);
  return absl::OkStatus();
}

// One call. Where a lease in it has ended before, none was ended by it, and halves are tried:
// `ended` says of one that it had.
absl::Status Client::DeregisterPart(std::span<Region> part, absl::Status* ended) const {
  v1::DeregisterRequest request;
  for (const Region& region : part) {
    if (region) request.add_lease_ids(region.lease_id());
  }
  if (request.lease_ids_size() == 0) return absl::OkStatus();
  absl::Status status = session_->rpc().Deregister(request, session_->call_timeout());
  const bool unknown = ReasonOf(status) == v1::LEASE_UNKNOWN;
  if (!status.ok() && !unknown) return status;
  if (unknown && part.size() > 1) {
    const size_t half = part.size() / 2;
    if (absl::Status first = DeregisterPart(part.first(half), ended); !first.ok()) return first;
    return DeregisterPart(part.subspan(half), ended);
  }
  if (unknown) *ended = status;
  for (Region& region : part) region.Clear();
  return absl::OkStatus();
}

absl::Status Client::Deregister(std::span<Region> regions) const {
  const size_t most = std::max<size_t>(welcome_.limits().max_ranges_per_call(), 1);
  absl::Status ended;
  for (size_t first = 0; first < regions.size(); first += most) {
    const size_t count = std::min(most, regions.size() - first);
    if (absl::Status status = DeregisterPart(regions.subspan(first, count), &ended); !status.ok()) {
      return status;
    }
  }
  return ended;
}

}  // namespace mrd
