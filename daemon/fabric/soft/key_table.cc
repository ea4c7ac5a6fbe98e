#include "daemon/fabric/soft/key_table.h"

#include <random>

namespace mrd::fabric {
namespace {

// A key in plain: | generation 11 bits | slot 20 bits | remote 1 bit |. Generations begin at 1, so
// that no key is 0.
constexpr int kGenerationShift = 21;
constexpr uint32_t kGenerations = 1u << (32 - kGenerationShift);
constexpr uint32_t kRemote = 1;
// Slots that rest before one of them is used again.
constexpr size_t kResting = 1024;

uint32_t InverseOf(uint32_t odd) {
  uint32_t inverse =
      odd;  // Right in the lowest three bits; each step doubles the number of right ones.
  for (int i = 0; i < 4; ++i) inverse *= 2 - odd * inverse;
  return inverse;
}

}  // namespace

KeyTable::KeyTable() : factor_(std::random_device()() | 1), inverse_(InverseOf(factor_)) {}

// Both steps are permutations that map 0 to 0.
uint32_t KeyTable::Scramble(uint32_t plain) const {
  const uint32_t x = plain * factor_;
  return (x ^ (x >> 16)) * factor_;
}

uint32_t KeyTable::Unscramble(uint32_t key) const {
  const uint32_t x = key * inverse_;
  return (x ^ (x >> 16)) * inverse_;
}

std::optional<KeyTable::Keys> KeyTable::Take() {
  MutexLock lock(mutex_);
  uint32_t slot;
  if (free_.size() <= kResting && generations_.size() < kCapacity) {
    slot = generations_.size();
    generations_.push_back(1);
  } else if (!free_.empty()) {
    slot = free_.front();
    free_.pop_front();
  } else {
    return std::nullopt;
  }
  const uint32_t plain = uint32_t{generations_[slot]} << kGenerationShift | slot << 1;
  return Keys{Scramble(plain), Scramble(plain | kRemote)};
}

void KeyTable::GiveBack(uint32_t lkey) {
  const uint32_t slot = Unscramble(lkey) >> 1 & (kCapacity - 1);
  MutexLock lock(mutex_);
  uint16_t& generation = generations_[slot];
  if (++generation == kGenerations) generation = 1;
  free_.push_back(slot);
}

uint32_t KeyTable::used() const {
  MutexLock lock(mutex_);
  return generations_.size() - free_.size();
}

}  // namespace mrd::fabric
