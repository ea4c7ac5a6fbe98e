#include "client/leftovers.h"

#include <algorithm>
#include <utility>

#include "mrd/v1/status.h"

namespace mrd::internal {

void Leftovers::AddLease(uint64_t lease_id) {
  MutexLock lock(&mutex_);
  ids_.leases.push_back(lease_id);
}

void Leftovers::AddEndpoint(uint64_t endpoint_id) {
  MutexLock lock(&mutex_);
  ids_.endpoints.push_back(endpoint_id);
}

bool Leftovers::empty() const {
  MutexLock lock(&mutex_);
  return ids_.leases.empty() && ids_.endpoints.empty();
}

void Leftovers::Drop() {
  MutexLock lock(&mutex_);
  ids_ = Ids();
}

void Leftovers::End(Rpc& rpc, size_t most, Rpc::Duration timeout) {
  Ids ids;
  {
    MutexLock lock(&mutex_);
    std::swap(ids, ids_);
  }
  for (const uint64_t id : ids.endpoints) {
    v1::DisconnectRequest request;
    request.set_endpoint_id(id);
    if (Rpc::DaemonIsAway(rpc.Disconnect(request, timeout, Rpc::Gap::kFail))) AddEndpoint(id);
  }
  for (size_t first = 0; first < ids.leases.size(); first += most) {
    const size_t end = std::min(first + most, ids.leases.size());
    v1::DeregisterRequest request;
    request.mutable_lease_ids()->Add(ids.leases.begin() + first, ids.leases.begin() + end);
    absl::Status ended = rpc.Deregister(request, timeout, Rpc::Gap::kFail);
    for (size_t i = first; i < end; ++i) {
      // One of them has lapsed, so that none was ended.
      if (ReasonOf(ended) == v1::LEASE_UNKNOWN) {
        v1::DeregisterRequest one;
        one.add_lease_ids(ids.leases[i]);
        const absl::Status alone = rpc.Deregister(one, timeout, Rpc::Gap::kFail);
        if (Rpc::DaemonIsAway(alone)) AddLease(ids.leases[i]);
      } else if (Rpc::DaemonIsAway(ended)) {
        AddLease(ids.leases[i]);
      }
    }
  }
}

}  // namespace mrd::internal
