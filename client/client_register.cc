// The part of Client that registers and deregisters: the hot path. One request and one answer on an
// arena, one block for the regions of a call, and no lock that is held for longer than a moment.
#include <google/protobuf/arena.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "client/buffer_state.h"
#include "client/client.h"
#include "client/local_error.h"
#include "client/region_state.h"
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
  // Enough for a small call; a larger one goes on on the heap.
  alignas(8) char block[4096];
  google::protobuf::ArenaOptions arena_options;
  arena_options.initial_block = block;
  arena_options.initial_block_size = sizeof(block);
  google::protobuf::Arena arena(arena_options);
  auto* request = google::protobuf::Arena::CreateMessage<v1::RegisterRequest>(&arena);
  auto* response = google::protobuf::Arena::CreateMessage<v1::RegisterResponse>(&arena);

  auto batch = std::make_shared<internal::RegionBatch>(ranges.size());
  batch->spec = {options.devices, options.all_devices, options.preset,        options.flags,
                 options.domain,  options.ttl,         options.release_after, options.newest_only};
  request->mutable_ranges()->Reserve(static_cast<int>(ranges.size()));
  for (size_t i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    internal::RegionState& state = batch->states[i];
    state.spec = &batch->spec;
    state.buffer = range.buffer->state_.get();
    // Sums that overflow wrap to ranges that the daemon refuses, as it does all that lie outside.
    state.offset = state.buffer->file_offset() + range.offset;
    state.length = range.length;
    state.addr = range.buffer->addr() + range.offset;
    v1::Range* out = request->add_ranges();
    out->set_offset(state.offset);
    out->set_length(state.length);
    out->set_addr(state.addr);
  }
  batch->spec.Fill(request);

  const auto timeout = options.timeout.count() > 0 ? options.timeout : session_->call_timeout();
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  internal::Rpc::RegisterOptions call;
  call.timeout = timeout;
  call.on_progress = options.on_progress;
  // A repeat, to a daemon that has been restarted, names the same buffers: they are passed again.
  absl::Status passed;
  const auto prepare = [&](uint64_t epoch) {
    passed = BufferState::PassAll(*session_, epoch, {buffers.data(), buffers.size()});
    for (size_t i = 0; i < ranges.size(); ++i) {
      v1::Range* out = request->mutable_ranges(static_cast<int>(i));
      if (out->buffer_id() == 0) out->set_buffer_id(batch->states[i].buffer->id());
    }
    return passed;
  };
  call.prepare = std::ref(prepare);
  const std::span<internal::RegionState> states(batch->states.get(), ranges.size());
  internal::Rpc::Registered registered;
  for (;;) {
    request->set_request_id(session_->NewRequestId());
    registered = session_->rpc().Register(*request, response, call);
    if (!registered.status.ok()) break;
    if (response->leases_size() != static_cast<int>(ranges.size())) {
      return absl::InternalError("the daemon answered Register with " +
                                 std::to_string(response->leases_size()) + " leases for " +
                                 std::to_string(ranges.size()) + " ranges");
    }
    for (size_t i = 0; i < ranges.size(); ++i) {
      states[i].Set(response->leases(static_cast<int>(i)));
    }
    if (session_->regions().Add(states, registered.epoch)) break;
    // The session was lost as the answer came, and those leases with it.
    call.timeout =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    response->Clear();
  }
  if (passed.ok() && ReasonOf(registered.status) == v1::QUOTA_BUFFERS) {
    // The daemon remembers that it did not take one of them: passed again, it may.
    for (BufferState* buffer : buffers) buffer->Release().IgnoreError();
  }
  if (!registered.status.ok()) return registered.status;
  if (options.release_after) {
    for (BufferState* buffer : buffers) {
      // What was passed again for a repeat may not have been needed, and lie there.
      if (registered.repeated) {
        buffer->Release().IgnoreError();
      } else {
        buffer->Forget();
      }
    }
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    Region& region = regions[i];
    region.buffer_ = ranges[i].buffer->state_;
    region.state_ = std::shared_ptr<internal::RegionState>(batch, &states[i]);
    region.addr_ = states[i].addr;
    region.length_ = states[i].length;
  }
  if (!ranges.empty() && states[0].ttl().count() > 0) session_->Granted(states[0].ttl());
  return absl::OkStatus();
}

// One call. Where a lease in it has ended before, none was ended by it, and halves are tried:
// `ended` says of one that it had. REQUIRES: withdrawn.
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
  const auto is_region = [](const Region& region) { return static_cast<bool>(region); };
  if (std::none_of(regions.begin(), regions.end(), is_region)) return absl::OkStatus();
  if (absl::Status usable = SessionStatus(); !usable.ok()) return usable;
  const size_t most = std::max<size_t>(session_->welcome()->limits().max_ranges_per_call(), 1);
  absl::Status ended;
  for (size_t first = 0; first < regions.size(); first += most) {
    const auto part = regions.subspan(first, std::min(most, regions.size() - first));
    for (Region& region : part) {
      if (region) session_->regions().Withdraw(*region.state_);
    }
    const absl::Status status = DeregisterPart(part, &ended);
    for (Region& region : part) {
      if (region) session_->regions().Return(*region.state_);
    }
    if (!status.ok()) return status;
  }
  return ended;
}

}  // namespace mrd
