#include "daemon/broker/request_log.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace mrd::broker {

void RequestLog::Drop(Records& from) {
  RequestRecord& record = from.front();
  views_ -= record.lease_ids.size();
  live_ -= record.live_leases;
  by_id_.erase(record.id);
  if (const auto written = calls_.find(&record); written != calls_.end()) {
    if (const auto call = written->second.lock()) call->ForgetRequest();
    calls_.erase(written);
  }
  if (record.live_leases == 0) return from.pop_front();
  // Its leases point to it.
  record.forgotten = true;
  record.lease_ids = {};
  record.ended.clear();
  forgotten_.splice(forgotten_.end(), from, record.place);
}

void RequestLog::Forget() {
  const auto now = std::chrono::steady_clock::now();
  const auto too_many = [this] { return views_ - live_ > std::max(kMostViews, live_); };
  while (!ended_.empty() && (ended_.size() > kMostEnded || too_many() ||
                             now - ended_.front().ended_at > kRemembered)) {
    Drop(ended_);
  }
  while (too_many()) Drop(living_);
}

RequestRecord* RequestLog::Find(const std::string& id) {
  Forget();
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

RequestRecord* RequestLog::Begin(const std::string& id, uint64_t fingerprint) {
  RequestRecord& record = running_.emplace_back();
  record.place = std::prev(running_.end());
  record.id = id;
  record.fingerprint = fingerprint;
  by_id_.emplace(record.id, &record);
  return &record;
}

Waiters RequestLog::Refuse(RequestRecord& record) {
  by_id_.erase(record.id);
  Waiters waiters = std::move(record.waiters);
  running_.erase(record.place);
  return waiters;
}

Waiters RequestLog::Answer(RequestRecord& record, const LeaseViews& answer,
                           const std::shared_ptr<ledger::CallRecord>& call) {
  if (call) calls_.emplace(&record, call);
  record.answered = true;
  record.lease_ids.reserve(answer.size());
  for (const LeaseView& view : answer) record.lease_ids.push_back(view.id);
  record.live_leases = static_cast<uint32_t>(answer.size());
  views_ += answer.size();
  live_ += answer.size();
  living_.splice(living_.end(), running_, record.place);
  return std::move(record.waiters);
}

void RequestLog::LeaseTaken(RequestRecord& record, const LeaseView& view) {
  if (!record.forgotten) record.ended.push_front(view);
}

void RequestLog::LeasePutBack(RequestRecord& record, uint64_t lease_id) {
  record.ended.remove_if([lease_id](const LeaseView& view) { return view.id == lease_id; });
}

void RequestLog::LeaseEnded(RequestRecord& record) {
  --record.live_leases;
  if (record.forgotten) {
    if (record.live_leases == 0) forgotten_.erase(record.place);
    return;
  }
  --live_;
  if (record.live_leases == 0) {
    record.ended_at = std::chrono::steady_clock::now();
    ended_.splice(ended_.end(), living_, record.place);
  }
  Forget();
}

}  // namespace mrd::broker
