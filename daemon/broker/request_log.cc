#include "daemon/broker/request_log.h"

#include <utility>

namespace mrd::broker {

void RequestLog::Forget() {
  const auto now = std::chrono::steady_clock::now();
  while (!ended_.empty() &&
         (ended_.size() > kMostEnded || now - ended_.front()->ended > kRemembered)) {
    by_id_.erase(ended_.front()->id);
    ended_.pop_front();
  }
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
  record->answer = std::move(answer);
  return std::move(record->waiters);
}

void RequestLog::LeaseEnded(const std::shared_ptr<RequestRecord>& record) {
  if (--record->live_leases > 0) return;
  record->ended = std::chrono::steady_clock::now();
  ended_.push_back(record);
  Forget();
}

}  // namespace mrd::broker
