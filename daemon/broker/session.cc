#include "daemon/broker/session.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "mrd/v1/status.h"

namespace mrd::broker {

SessionView Session::View() {
  std::string rule = terms()->rule;
  MutexLock lock(mutex);
  const auto unclaimed = std::count_if(buffers.begin(), buffers.end(),
                                       [](const auto& each) { return !each.second.claimed; });
  return {.id = id,
          .identity = identity,
          .name = name,
          .attached = attached,
          .held = held,
          .buffers = buffers.size(),
          .leases = leases.size(),
          .rule = std::move(rule),
          .command_line = command_line,
          .unclaimed = static_cast<size_t>(unclaimed),
          .calls = calls_made.load(std::memory_order_relaxed),
          .renewals = renewals.load(std::memory_order_relaxed),
          .lapses = lapses.load(std::memory_order_relaxed),
          .ending = ending};
}

LeaseView Session::ViewOf(const Lease& lease) const {
  LeaseView view = lease.view;
  if (lease.ttl.count() > 0) view.remaining = expiries.Remaining(lease, Expiries::Clock::now());
  return view;
}

std::shared_ptr<const LeaseViews> Session::AnswerOf(const RequestRecord& record) const {
  absl::flat_hash_map<uint64_t, const LeaseView*> ended;
  for (const LeaseView& view : record.ended) ended.emplace(view.id, &view);
  auto answer = std::make_shared<LeaseViews>();
  answer->reserve(record.lease_ids.size());
  for (const uint64_t id : record.lease_ids) {
    if (const auto lease = leases.find(id); lease != leases.end()) {
      answer->push_back(ViewOf(*lease->second));
      continue;
    }
    answer->push_back(*ended.at(id));
    if (answer->back().remaining) answer->back().remaining = std::chrono::nanoseconds(0);
  }
  return answer;
}

void Session::PutLease(std::unique_ptr<Lease> lease) {
  if (lease->ttl.count() > 0) expiries.Add(*lease, Expiries::Clock::now());
  const uint64_t lease_id = lease->view.id;
  if (lease->request) requests.LeasePutBack(*lease->request, lease_id);
  being_ended.erase(lease_id);
  leases.emplace_hint(leases.end(), lease_id, std::move(lease));
}

std::unique_ptr<Lease> Session::TakeLease(uint64_t lease_id) {
  const auto found = leases.find(lease_id);
  if (found == leases.end()) return nullptr;
  std::unique_ptr<Lease> lease = std::move(found->second);
  leases.erase(found);
  if (lease->ttl.count() > 0) expiries.Remove(*lease);
  if (lease->request) requests.LeaseTaken(*lease->request, lease->view);
  being_ended.insert(lease_id);
  return lease;
}

void Session::Ended(const Lease& lease) {
  if (lease.request) requests.LeaseEnded(*lease.request);
  being_ended.erase(lease.view.id);
}

absl::Status Session::NoLease(uint64_t lease_id, const char* so) const {
  if (being_ended.contains(lease_id)) {
    return MakeError(v1::BUSY, absl::StrCat("lease ", lease_id, " is being ended; ", so),
                     {.advice = "Its device may reach the memory still: ask again"});
  }
  return MakeError(v1::LEASE_UNKNOWN, absl::StrCat("no lease ", lease_id, " in this session; ", so),
                   {.advice = "It has ended already; ListLeases shows those that stand"});
}

}  // namespace mrd::broker
