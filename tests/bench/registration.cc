#include "tests/bench/registration.h"

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"

namespace mrd::bench {
namespace {

using benchmark::State;

// Iterations a round: a round of the whole takes about a second in an emulated machine.
constexpr int kSmallCalls = 32;
constexpr int kManyCalls = 4;
constexpr int kLargeCalls = 4;
constexpr int kFirstCalls = 2;

class Stopwatch {
 public:
  double Seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// All of an iteration counts.
template <typename Body>
void AddWhole(const char* name, int iterations, Body body) {
  benchmark::RegisterBenchmark(name,
                               [body](State& state) {
                                 for ([[maybe_unused]] auto _ : state) body();
                               })
      ->Iterations(iterations)
      ->UseRealTime();
}

// What `body` returns counts.
template <typename Body>
void AddTimed(const std::string& name, int iterations, Body body) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [body](State& state) {
                                 for ([[maybe_unused]] auto _ : state)
                                   state.SetIterationTime(body());
                               })
      ->Iterations(iterations)
      ->UseManualTime();
}

std::vector<Range> PagesOf(const Buffer& buffer) {
  std::vector<Range> pages;
  for (int i = 0; i < kMany; ++i) pages.emplace_back(buffer, i * kSmall, kSmall);
  return pages;
}

void AddSmall(const MrdSide& mrd, Direct& direct, std::shared_ptr<Buffer> buffer) {
  AddWhole(kEmptyCall, 2 * kSmallCalls, [&mrd] { mrd.EmptyCall(); });
  AddWhole(kMrdSmall, kSmallCalls, [&mrd, buffer] {
    Region region = mrd.Register(Range(*buffer, 0, kSmall));
    mrd.Deregister(std::span(&region, 1));
  });
  AddTimed(kDirectSmall, kSmallCalls, [&mrd, &direct, buffer] {
    mrd.EmptyCall();
    const Stopwatch registering;
    ibv_mr* const region = direct.Register(buffer->data(), kSmall);
    double took = registering.Seconds();
    mrd.EmptyCall();
    const Stopwatch deregistering;
    direct.Deregister(region);
    return took + deregistering.Seconds();
  });
}

void AddMany(const MrdSide& mrd, Direct& direct, std::shared_ptr<Buffer> buffer) {
  AddTimed(kMrdMany, kManyCalls, [&mrd, buffer, pages = PagesOf(*buffer)] {
    const Stopwatch watch;
    std::vector<Region> regions = mrd.Register(pages);
    const double took = watch.Seconds();
    mrd.Deregister(regions);
    return took;
  });
  AddTimed(kDirectMany, kManyCalls, [&mrd, &direct, buffer] {
    std::vector<ibv_mr*> regions(kMany);
    mrd.EmptyCall();
    const Stopwatch watch;
    for (int i = 0; i < kMany; ++i) {
      regions[i] = direct.Register(static_cast<char*>(buffer->data()) + i * kSmall, kSmall);
    }
    const double took = watch.Seconds();
    for (ibv_mr* region : regions) direct.Deregister(region);
    return took;
  });
}

void AddLarge(const MrdSide& mrd, Direct& direct, std::shared_ptr<Buffer> buffer) {
  AddTimed(kMrdLarge, kLargeCalls, [&mrd, buffer] {
    const Stopwatch watch;
    Region region = mrd.Register(*buffer);
    const double took = watch.Seconds();
    mrd.Deregister(std::span(&region, 1));
    return took;
  });
  AddTimed(kDirectLarge, kLargeCalls, [&mrd, &direct, buffer] {
    mrd.EmptyCall();
    const Stopwatch watch;
    ibv_mr* const region = direct.Register(buffer->data(), kLarge);
    const double took = watch.Seconds();
    direct.Deregister(region);
    return took;
  });
}

void AddFirst(const MrdSide& mrd, Direct& direct, std::shared_ptr<Buffer> buffer) {
  AddTimed(kMrdFirst, kFirstCalls, [&mrd, buffer] {
    // The daemon forgets the buffer: the next call passes it and maps it anew.
    if (!buffer->Release().ok()) abort();
    const Stopwatch watch;
    Region region = mrd.Register(*buffer);
    const double took = watch.Seconds();
    mrd.Deregister(std::span(&region, 1));
    return took;
  });
  for (const Populate populate : kEachPopulate) {
    AddTimed(DirectFirst(populate), kFirstCalls, [&mrd, &direct, buffer, populate] {
      mrd.EmptyCall();
      const Stopwatch watch;
      const FreshMapping mapping(buffer->fd(), kLarge, populate);
      ibv_mr* const region = direct.Register(mapping.data(), kLarge);
      const double took = watch.Seconds();
      direct.Deregister(region);
      return took;
    });
  }
}

}  // namespace

std::string DirectFirst(Populate populate) {
  return std::string("direct: 64 MiB, first use, ") + NameOf(populate);
}

void AddRegistrationBenchmarks(const MrdSide& mrd, Direct& direct) {
  const auto mapped = std::make_shared<Buffer>(mrd.MakeBuffer(kLarge));
  AddSmall(mrd, direct, mapped);
  AddMany(mrd, direct, mapped);
  AddLarge(mrd, direct, mapped);
  AddFirst(mrd, direct, std::make_shared<Buffer>(mrd.MakeBuffer(kLarge)));
}

}  // namespace mrd::bench
