// The keys of soft0's regions: a pair of 32-bit numbers a region, never 0, no two alike among those
// in use, and with no order that a peer could guess the next by. A pair comes again only after two
// million others. Thread safety: any thread.
#ifndef MRD_DAEMON_FABRIC_SOFT_KEY_TABLE_H_
#define MRD_DAEMON_FABRIC_SOFT_KEY_TABLE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "daemon/mutex.h"

namespace mrd::fabric {

class KeyTable {
 public:
  static constexpr uint32_t kCapacity = 1u << 20;

  struct Keys {
    uint32_t lkey;
    uint32_t rkey;
  };

  KeyTable();

  // Nothing when all are in use.
  std::optional<Keys> Take() MRD_EXCLUDES(mutex_);
  // `lkey` is one that Take gave and nobody has given back.
  void GiveBack(uint32_t lkey) MRD_EXCLUDES(mutex_);

  uint32_t used() const MRD_EXCLUDES(mutex_);

 private:
  uint32_t Scramble(uint32_t plain) const;
  uint32_t Unscramble(uint32_t key) const;

  const uint32_t factor_;   // Odd and random: multiplication by it is a permutation of 32 bits.
  const uint32_t inverse_;  // Of factor_, modulo 2^32.

  mutable Mutex mutex_;
  // A slot's number and its generation make the key; a slot rests in free_ before it is taken anew.
  std::vector<uint16_t> generations_ MRD_GUARDED_BY(mutex_);
  std::deque<uint32_t> free_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::fabric

#endif  // MRD_DAEMON_FABRIC_SOFT_KEY_TABLE_H_
