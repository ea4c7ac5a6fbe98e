#include "client/add_keys.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "client/buffer_state.h"
#include "client/region_state.h"
#include "mrd/v1/status.h"

namespace mrd::internal {
namespace {

using Wanted = std::function<bool(const RegionState&)>;

class Adding final {
 public:
  Adding(Session& session, uint64_t epoch, Rekeyed* rekeyed)
      : session_(session), epoch_(epoch), rekeyed_(rekeyed) {}

  // In one call; where one of the leases has ended, or there are too many buffers, in halves.
  absl::Status Add(std::span<RegionState* const> part) {
    std::vector<BufferState*> buffers;
    std::optional<LentBuffers> lent(session_);
    for (const RegionState* region : part) {
      // One that the daemon was not to hold any more is not left with it.
      if (region->buffer->id() == 0) {
        lent->Add(region->buffer);
      } else {
        buffers.push_back(region->buffer);
      }
    }
    v1::AddKeysRequest request;
    for (const RegionState* region : part) request.add_leases()->set_lease_id(region->lease_id());
    const auto prepare = [&](uint64_t epoch) {
      absl::Status passed = BufferState::PassAll(session_, epoch, buffers);
      passed.Update(lent->Pass(epoch));
      for (size_t i = 0; i < part.size(); ++i) {
        const uint64_t id = lent->IdOf(part[i]->buffer);
        request.mutable_leases(static_cast<int>(i))
            ->set_buffer_id(id != 0 ? id : part[i]->buffer->id());
      }
      return passed;
    };
    v1::AddKeysResponse response;
    absl::Status status =
        session_.rpc().AddKeys(request, &response, session_.call_timeout(), std::ref(prepare));
    lent.reset();
    if (status.ok() && response.leases_size() != request.leases_size()) {
      status = absl::InternalError("the daemon answered AddKeys with another number of leases");
    }
    const v1::Reason reason = ReasonOf(status);
    if (!session_.regions().InSession(epoch_)) return status;  // Who restores them tells of it.
    if ((reason == v1::LEASE_UNKNOWN || reason == v1::QUOTA_BUFFERS) && part.size() > 1) {
      const size_t half = part.size() / 2;
      const absl::Status first = Add(part.first(half));
      const absl::Status second = Add(part.subspan(half));
      return first.ok() ? second : first;
    }
    for (size_t i = 0; i < part.size(); ++i) {
      Tell(*part[i], status.ok() ? &response.leases(static_cast<int>(i)) : nullptr, status);
    }
    return status;
  }

 private:
  void Tell(RegionState& region, const v1::Lease* lease, const absl::Status& status) {
    RekeyedRegion out;
    out.old_lease_id = region.lease_id();
    out.old_keys = region.keys();
    if (lease && !session_.regions().SetKeys(region, *lease, epoch_)) return;
    out.lease_id = region.lease_id();
    out.addr = region.addr;
    out.length = region.length;
    out.keys = region.keys();
    out.status = status;
    if (status.ok() && out.old_keys == out.keys) return;
    rekeyed_->regions.push_back(std::move(out));
  }

  Session& session_;
  const uint64_t epoch_;
  Rekeyed* const rekeyed_;
};

absl::Status AddWhere(Session& session, const Wanted& wanted, Rekeyed* rekeyed) {
  rekeyed->why = Rekeyed::Why::kNewGeneration;
  const uint64_t epoch = session.state().epoch();
  const auto welcome = session.welcome();
  rekeyed->session_id = welcome->session_id();
  const size_t most = std::max<size_t>(welcome->limits().max_ranges_per_call(), 1);
  const std::vector<RegionState*> regions = session.regions().Pin(epoch, wanted);
  const std::span<RegionState* const> all(regions);
  absl::Status first_refusal;
  Adding adding(session, epoch, rekeyed);
  for (size_t first = 0; first < all.size(); first += most) {
    first_refusal.Update(adding.Add(all.subspan(first, std::min(most, all.size() - first))));
  }
  session.regions().Unpin(regions);
  return first_refusal;
}

}  // namespace

absl::Status AddKeys(Session& session, Rekeyed* rekeyed) {
  if (absl::Status usable = session.state().Check(); !usable.ok()) return usable;
  return AddWhere(
      session, [](const RegionState&) { return true; }, rekeyed);
}

void AddKeysFor(Session& session, const v1::Endpoint& endpoint, const std::string& domain) {
  if (endpoint.generation() == 0 || session.reconnections() == 0) return;
  const auto unreached = [&](const RegionState& region) {
    if (region.spec->domain != domain) return false;
    bool there = false;
    for (const RegionKey& key : region.keys()) {
      if (key.device != endpoint.device()) continue;
      if (key.generation >= endpoint.generation()) return false;
      there = true;
    }
    return there;
  };
  Rekeyed rekeyed;
  // Each region's own refusal is told.
  AddWhere(session, unreached, &rekeyed).IgnoreError();
  if (!rekeyed.regions.empty()) session.TellRekeyed(std::move(rekeyed));
}

}  // namespace mrd::internal
