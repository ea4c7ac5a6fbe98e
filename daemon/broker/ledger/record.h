// A record of the ledger, for as long as this lives.
#ifndef MRD_DAEMON_BROKER_LEDGER_RECORD_H_
#define MRD_DAEMON_BROKER_LEDGER_RECORD_H_

#include <cstdint>
#include <utility>

#include "daemon/broker/ledger/slots.h"

namespace mrd::broker::ledger {

class Record {
 public:
  Record() = default;
  Record(Slots& slots, Slots::Id id) : slots_(&slots), id_(id) {}
  Record(Record&& other) noexcept
      : slots_(std::exchange(other.slots_, nullptr)), id_(std::exchange(other.id_, 0)) {}
  Record& operator=(Record&& other) noexcept {
    std::swap(slots_, other.slots_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~Record() { Erase(); }

  explicit operator bool() const { return slots_ != nullptr; }

  // It counts no more.
  void Erase() {
    if (slots_) slots_->Erase(id_);
    slots_ = nullptr;
  }
  void SetStamp(uint64_t stamp) {
    if (slots_) slots_->SetStamp(id_, stamp);
  }
  Slots::Id id() const { return id_; }

 private:
  Slots* slots_ = nullptr;
  Slots::Id id_ = 0;
};

}  // namespace mrd::broker::ledger

#endif  // MRD_DAEMON_BROKER_LEDGER_RECORD_H_
