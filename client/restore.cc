#include "client/restore.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/buffer_state.h"
#include "client/region_state.h"
#include "mrd/v1/status.h"

namespace mrd::internal {
namespace {

using Clock = std::chrono::steady_clock;

// A domain that others made is there when one of them has come back.
constexpr std::chrono::seconds kDomainPatience{5};
constexpr std::chrono::milliseconds kDomainPause{50};
// A daemon that refuses since it is ending hangs up soon.
constexpr std::chrono::seconds kEndPatience{1};
constexpr std::chrono::milliseconds kEndPause{10};

class Restoration final {
 public:
  Restoration(Session& session, const Rpc::Restorer& restorer, Rekeyed* rekeyed)
      : session_(session), restorer_(restorer), rekeyed_(rekeyed) {}

  bool Run() {
    const std::vector<RegionState*> regions = session_.regions().BeginSession(epoch());
    const bool done = OpenDomains() && RegisterAll(regions);
    if (done) Apply();
    session_.regions().Unpin(regions);
    return done;
  }

 private:
  // One region, or a failure that it has.
  struct Result {
    RegionState* region;
    absl::StatusOr<v1::Lease> lease;
  };

  uint64_t epoch() const { return restorer_.ticket.epoch; }

  bool Stopped() const { return !session_.state().Check().ok(); }

  // Whether it says that there is no session to restore into any more.
  bool Broke(const absl::Status& status) {
    switch (ReasonOf(status)) {
      case v1::SESSION_UNKNOWN:
        return true;
      case v1::REASON_UNSPECIFIED:
        return absl::IsUnavailable(status) || absl::IsCancelled(status) || Stopped();
      case v1::DRAINING:
        // Once: one that was drained by its operator stays, and refuses the others too.
        if (end_awaited_) return !restorer_.alive();
        for (const auto until = Clock::now() + kEndPatience; Clock::now() < until;) {
          if (!restorer_.alive() || session_.state().WaitEnded(kEndPause)) return true;
        }
        end_awaited_ = true;
        return false;
      default:
        return false;
    }
  }

  bool OpenDomains() {
    const auto patience = Clock::now() + kDomainPatience;
    for (const v1::OpenDomainRequest& domain : session_.domains()) {
      absl::Status opened;
      for (;;) {
        v1::OpenDomainResponse response;
        opened = session_.rpc().OpenDomain(domain, &response, session_.call_timeout(), &restorer_);
        if (Broke(opened)) return false;
        if (ReasonOf(opened) != v1::DOMAIN_UNKNOWN || Clock::now() >= patience) break;
        if (session_.state().WaitEnded(kDomainPause)) return false;
      }
      if (opened.ok()) continue;
      rekeyed_->lost_domains.push_back({domain.name(), opened});
      session_.Closed(domain.name());
    }
    return true;
  }

  const absl::Status* LostDomain(const std::string& name) const {
    for (const auto& domain : rekeyed_->lost_domains) {
      if (domain.name == name) return &domain.status;
    }
    return nullptr;
  }

  // Those that were asked for alike go together, whichever calls made them.
  bool RegisterAll(std::vector<RegionState*> regions) {
    std::sort(regions.begin(), regions.end(), [](const RegionState* a, const RegionState* b) {
      return a->lease_id() < b->lease_id();
    });
    std::map<std::pair<const RegionSpec*, bool>, std::string> keys;
    std::map<std::string, std::pair<v1::RegisterRequest, std::vector<RegionState*>>> groups;
    for (RegionState* region : regions) {
      if (const absl::Status* lost = LostDomain(region->spec->domain)) {
        results_.push_back({region, *lost});
        continue;
      }
      // A buffer that the daemon was not to hold any more is not left with it.
      const bool release = region->spec->release_after || region->buffer->id() == 0;
      std::string& key = keys[{region->spec, release}];
      v1::RegisterRequest request;
      if (key.empty()) {
        region->spec->Fill(&request);
        request.set_release_after(release);
        // Never empty, though all fields may be at their defaults.
        key = request.SerializeAsString() + '.';
      }
      auto [group, made] = groups.try_emplace(key);
      if (made) group->second.first = std::move(request);
      group->second.second.push_back(region);
    }
    const size_t most = std::max<size_t>(session_.welcome()->limits().max_ranges_per_call(), 1);
    for (auto& [key, group] : groups) {
      const std::span<RegionState* const> all(group.second);
      for (size_t first = 0; first < all.size(); first += most) {
        const auto part = all.subspan(first, std::min(most, all.size() - first));
        if (!RegisterPart(group.first, part)) return false;
      }
    }
    return true;
  }

  // In one call; where that is refused, in halves, since it may be refused for one of them.
  bool RegisterPart(const v1::RegisterRequest& like, std::span<RegionState* const> part) {
    v1::RegisterResponse response;
    absl::Status status = Call(like, part, &response);
    if (Broke(status)) return false;
    if (status.ok()) {
      for (size_t i = 0; i < part.size(); ++i) {
        results_.push_back({part[i], response.leases(static_cast<int>(i))});
      }
      return true;
    }
    // Not what took all its time, and not what a drained daemon says of each.
    const v1::Reason reason = ReasonOf(status);
    const bool again = reason != v1::REASON_UNSPECIFIED && reason != v1::DRAINING;
    if (part.size() > 1 && again) {
      const size_t half = part.size() / 2;
      return RegisterPart(like, part.first(half)) && RegisterPart(like, part.subspan(half));
    }
    for (RegionState* region : part) results_.push_back({region, status});
    return true;
  }

  absl::Status Call(const v1::RegisterRequest& like, std::span<RegionState* const> part,
                    v1::RegisterResponse* response) {
    std::vector<BufferState*> buffers;
    for (const RegionState* region : part) buffers.push_back(region->buffer);
    absl::Status passed = BufferState::PassAll(session_, epoch(), buffers);
    if (!passed.ok()) return passed;
    v1::RegisterRequest request = like;
    request.set_request_id(session_.NewRequestId());
    for (const RegionState* region : part) {
      v1::Range* range = request.add_ranges();
      range->set_buffer_id(region->buffer->id());
      range->set_offset(region->offset);
      range->set_length(region->length);
      range->set_addr(region->addr);
    }
    Rpc::RegisterOptions options;
    options.timeout = session_.call_timeout();
    options.restorer = &restorer_;
    absl::Status status = session_.rpc().Register(request, response, options).status;
    if (status.ok() && response->leases_size() != request.ranges_size()) {
      status = absl::InternalError("the daemon answered Register with another number of leases");
    }
    if (status.ok() && like.release_after()) {
      for (BufferState* buffer : buffers) buffer->Forget();
    }
    return status;
  }

  void Apply() {
    std::sort(results_.begin(), results_.end(), [](const Result& a, const Result& b) {
      return a.region->lease_id() < b.region->lease_id();
    });
    for (Result& result : results_) {
      RegionState& region = *result.region;
      RekeyedRegion out;
      out.old_lease_id = region.lease_id();
      out.old_keys = region.keys();
      out.addr = region.addr;
      out.length = region.length;
      if (result.lease.ok()) {
        region.Set(*result.lease);
        out.lease_id = region.lease_id();
        out.keys = region.keys();
        if (region.ttl().count() > 0) session_.Granted(region.ttl());
      } else {
        session_.regions().MarkEnded(region);
        out.status = result.lease.status();
      }
      rekeyed_->regions.push_back(std::move(out));
    }
  }

  Session& session_;
  const Rpc::Restorer& restorer_;
  Rekeyed* const rekeyed_;
  std::vector<Result> results_;
  bool end_awaited_ = false;
};

}  // namespace

bool Restore(Session& session, const Rpc::Restorer& restorer, Rekeyed* rekeyed) {
  return Restoration(session, restorer, rekeyed).Run();
}

}  // namespace mrd::internal
