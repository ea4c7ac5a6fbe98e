#include "daemon/broker/request_log.h"

#include <algorithm>
#include <utility>

namespace mrd::broker {

void RequestLog::Drop(Records& from) {
  const std::shared_ptr<RequestRecord> record = std::move(from.front());
  from.pop_front();
  record->forgotten = true;
  views_ -= record->answer->size();
  live_ -= record->live_leases;
  by_id_.erase(record->id);
}

void RequestLog::Forget() {
  const auto now = std::chrono::steady_clock::now();
  const auto too_many = [this] { return views_ - live_ > std::max(kMostViews, live_); };
  while (!ended_.empty() &&
         (ended_.size() > kMostEnded || too_many() || now - ended_.front()->ended > kRemembered)) {
    Drop(ended_);
  }
  while (too_many()) Drop(living_);
}

std::shared_ptr<RequestRecord> RequestLog::Find(const std::string& id) {
  Forget();
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second;
}

std::shared_ptr<RequestRecord> RequestLog::Begin(const std::string& id, uint64_t fingerprint) {
  auto record = std::make_shared<RequestRecord>();
  record->id = id;
  record->fingerprint = fingerprint;
  by_id_.emplace(record->id, record);
  return record;
}

std::vector<RegisterDone> RequestLog::Refuse(const std::shared_ptr<RequestRecord>& record) {
  by_id_.erase(record->id);
  return std::move(record->waiters);
}

std::vector<RegisterDone> RequestLog::Answer(const std::shared_ptr<RequestRecord>& record,
                                             std::shared_ptr<const LeaseViews> answer) {
  record->live_leases = answer->size();
  views_ += answer->size();
  live_ += answer->size();
  record->answer = std::move(answer);
  record->place = living_.insert(living_.end(), record);
  return std::move(record->waiters);
}

void RequestLog::LeaseEnded(const std::shared_ptr<RequestRecord>& record) {
  --record->live_leases;
  if (record->forgotten) return;
  --live_;
  if (record->live_leases == 0) {
    record->ended = std::chrono::steady_clock::now();
    ended_.splice(ended_.end(), living_, record->place);
  }
  Forget();
}

}  // namespace mrd::broker
