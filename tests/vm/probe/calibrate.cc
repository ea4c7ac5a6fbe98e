#include "tests/vm/probe/calibrate.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace probe {
namespace {

// Of one piece: about a millisecond each where nothing is emulated.
constexpr int kCalls = 2'000;
constexpr int kMappings = 50;
constexpr size_t kMappingBytes = 64 << 10;
constexpr uint64_t kSteps = 400'000;
constexpr std::chrono::milliseconds kEnough{400};

void CallTheKernel() {
  int ends[2];
  if (pipe(ends) != 0) return;
  char byte = 0;
  for (int i = 0; i < kCalls; ++i) {
    if (write(ends[1], &byte, 1) != 1 || read(ends[0], &byte, 1) != 1) break;
  }
  close(ends[0]);
  close(ends[1]);
}

void MapAndTouch() {
  for (int i = 0; i < kMappings; ++i) {
    void* const memory = mmap(nullptr, kMappingBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory != MAP_FAILED) munmap(memory, kMappingBytes);
  }
}

void Compute() {
  volatile uint64_t result;
  uint64_t value = 1;
  for (uint64_t i = 0; i < kSteps; ++i) {
    value ^= value << 13;
    value ^= value >> 7;
    value ^= value << 17;
  }
  result = value;
  (void)result;
}

}  // namespace

Calibration Calibrate() {
  using Clock = std::chrono::steady_clock;
  Clock::duration best = Clock::duration::max();
  Clock::duration sum{0};
  int pieces = 0;
  while (pieces < 5 || (sum < kEnough && pieces < 100)) {
    const auto start = Clock::now();
    CallTheKernel();
    MapAndTouch();
    Compute();
    const auto took = Clock::now() - start;
    best = std::min(best, took);
    sum += took;
    ++pieces;
  }
  return {std::chrono::duration_cast<std::chrono::microseconds>(best),
          std::chrono::duration_cast<std::chrono::microseconds>(sum / pieces)};
}

}  // namespace probe
