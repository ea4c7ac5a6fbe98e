#include "tests/vm/probe/calibrate.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace probe {
namespace {

constexpr int kCalls = 20'000;
constexpr int kMappings = 100;
constexpr size_t kMappingBytes = 64 << 10;
constexpr uint64_t kSteps = 5'000'000;

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

std::chrono::microseconds Calibrate() {
  using Clock = std::chrono::steady_clock;
  Clock::duration best = Clock::duration::max();
  for (int i = 0; i < 3; ++i) {
    const auto start = Clock::now();
    CallTheKernel();
    MapAndTouch();
    Compute();
    best = std::min(best, Clock::now() - start);
  }
  return std::chrono::duration_cast<std::chrono::microseconds>(best);
}

}  // namespace probe
