#include "tests/vm/probe/storm.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <random>

#include "client/client.h"

namespace probe {
namespace {

using Clock = std::chrono::steady_clock;

enum Stage { kStarted, kAttached, kMade, kRegistered, kDeregistered, kFailed, kStages };
const char* const kNames[] = {"started",    "attached",     "made",
                              "registered", "deregistered", "failed"};

constexpr int kMeasured = 3;  // Clients that are let through first, to learn how long one takes.
constexpr uint64_t kBytes = 16384;  // Of a region.

// A client's whole life; then it waits to be killed.
[[noreturn]] void Live(const StormOptions& options, std::atomic<int>* stage) {
  const auto fail = [stage](const absl::Status& status) {
    fprintf(stderr, "client: %s\n", std::string(status.message()).c_str());
    *stage = kFailed;
    for (;;) pause();
  };
  auto client = mrd::Client::Attach({.name = "storm"});
  if (!client.ok()) fail(client.status());
  *stage = kAttached;
  auto buffer = client->CreateBuffer(options.regions * kBytes);
  if (!buffer.ok()) fail(buffer.status());
  *stage = kMade;
  std::vector<mrd::Range> ranges;
  for (uint64_t i = 0; i < options.regions; ++i) ranges.emplace_back(*buffer, i * kBytes, kBytes);
  mrd::RegisterOptions how;
  how.devices = {options.device};
  how.preset = mrd::v1::Access::REG_WRITE;
  auto regions = client->Register(how, ranges);
  if (!regions.ok()) fail(regions.status());
  *stage = kRegistered;
  // Half of them end before the client does.
  absl::Status ended = client->Deregister(std::span(*regions).subspan(0, options.regions / 2));
  if (!ended.ok()) fail(ended);
  *stage = kDeregistered;
  for (;;) pause();
}

void Sleep(Clock::duration time) {
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  timespec left = {ns / 1'000'000'000, ns % 1'000'000'000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

}  // namespace

int RunStorm(const StormOptions& options) {
  void* const shared = mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return 1;
  auto* const stage = new (shared) std::atomic<int>(kStarted);
  std::mt19937_64 random(options.seed);
  std::array<uint64_t, kStages> reached = {};
  Clock::duration whole_life{0};
  for (uint64_t i = 0; i < options.clients; ++i) {
    *stage = kStarted;
    const auto start = Clock::now();
    const pid_t pid = fork();
    if (pid < 0) return 1;
    if (pid == 0) Live(options, stage);
    if (i < kMeasured) {
      while (*stage < kDeregistered) Sleep(std::chrono::milliseconds(1));
      // The first one pays for what is made once.
      if (i > 0) whole_life = std::max<Clock::duration>(whole_life, Clock::now() - start);
    } else {
      std::uniform_int_distribution<Clock::rep> moment(0, whole_life.count() * 5 / 4);
      Sleep(Clock::duration(moment(random)));
    }
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    ++reached[*stage];
  }
  printf(
      "clients=%lu seed=%lu whole_life_ms=%ld", options.clients, options.seed,
      static_cast<long>(std::chrono::duration_cast<std::chrono::milliseconds>(whole_life).count()));
  for (int i = 0; i < kStages; ++i) printf(" %s=%lu", kNames[i], reached[i]);
  printf("\n");
  return reached[kFailed] == 0 ? 0 : 1;
}

}  // namespace probe
