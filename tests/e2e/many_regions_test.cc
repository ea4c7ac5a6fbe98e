// A thousand sessions with a hundred regions each: what a region costs in memory, what all of them
// cost one more call, and what they cost while nobody calls.
#include <dirent.h>

#include <sstream>
#include <thread>

#include "tests/e2e/daemon_test.h"
#include "tests/e2e/latencies.h"

namespace mrd::e2e {
namespace {

// CPU time of all threads of a process.
std::chrono::nanoseconds CpuOf(pid_t pid) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task/";
  std::chrono::nanoseconds sum{0};
  DIR* const dir = opendir(tasks.c_str());
  Require(dir != nullptr, "the daemon's threads");
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] == '.') continue;
    std::istringstream stat(ReadFile(tasks + entry->d_name + "/schedstat"));
    int64_t ran = 0;
    stat >> ran;
    sum += std::chrono::nanoseconds(ran);
  }
  closedir(dir);
  return sum;
}

class ManyRegionsTest : public EachFabricTest {
 protected:
  static constexpr int kRegions = 100;  // Of each session.
  // The promise is 0.1. Measured are 0.07 to 0.24, by machine: gRPC's pollers wake up twice a
  // second, and it looks at its timers of a thousand connections. Where each wake-up is dear, as in
  // some virtual machines, a daemon with one session tells it: 0.08 beside 0.2.
  static constexpr double kIdlePercent = 0.2;
  static constexpr double kIdleTimesOneSession = 3;
  static constexpr double kBytesARegion = 600;

  // One region, in a call that can be repeated, as the client library makes it.
  void Hold(RawClient& client, uint64_t buffer, int number) {
    v1::RegisterRequest request = RequestFor(buffer, memory_);
    request.set_request_id("0123456789abcdef." + std::to_string(number));
    const auto made = client.Register(request);
    ASSERT_TRUE(made.ok()) << made.text();
  }

  void TimeRegistration(RawClient& client, uint64_t buffer, Latencies* latencies) {
    Answer<v1::RegisterResponse> made;
    latencies->Time([&] { made = client.Register(RequestFor(buffer, memory_)); });
    ASSERT_TRUE(made.ok()) << made.text();
    ASSERT_TRUE(client.Deregister({made.response.leases(0).lease_id()}).ok());
  }

  const Memory memory_{kPage};
};
MRD_ON_EACH_FABRIC(ManyRegionsTest);

TEST_P(ManyRegionsTest, AHundredOfEachOfAThousandSessions) {
  StartThis();
  // Beside it, at the same time on the same machine: a daemon with one session.
  DaemonProcess quiet({.fabric = GetParam()});
  RawClient alone(quiet.dir());
  const uint64_t alone_buffer = alone.Pass(memory_);

  const int sessions = Scaled(1000);
  std::vector<std::unique_ptr<RawClient>> clients;
  std::vector<uint64_t> buffers;
  Latencies warming;
  for (int i = 0; i < sessions; ++i) {
    clients.push_back(std::make_unique<RawClient>(dir()));
    buffers.push_back(clients.back()->Pass(memory_));
    // What the session itself and its connection cost is there before the regions.
    TimeRegistration(*clients.back(), buffers.back(), &warming);
  }
  const uint64_t before = daemon().Pss();
  for (int number = 0; number < kRegions; ++number) {
    for (int i = 0; i < sessions; ++i) Hold(*clients[i], buffers[i], number);
  }
  const uint64_t regions = static_cast<uint64_t>(sessions) * kRegions;
  ASSERT_EQ(Look().regions, regions);
  const double each = (static_cast<double>(daemon().Pss()) - static_cast<double>(before)) / regions;

  // gRPC is busy with its timers for some seconds after so many calls.
  std::this_thread::sleep_for(seconds(8));
  // The machine's other work only adds to each of these: the least is the daemon's.
  double idle = 100;
  double idle_of_one = 100;
  const auto most = [&] { return std::max(kIdlePercent, kIdleTimesOneSession * idle_of_one); };
  for (int window = 0; window < 3 || (window < 10 && idle > most()); ++window) {
    const auto cpu = CpuOf(daemon().pid());
    const auto cpu_of_one = CpuOf(quiet.pid());
    const auto began = Clock::now();
    std::this_thread::sleep_for(seconds(3));
    const auto window_length = Clock::now() - began;
    idle = std::min(idle, 100.0 * (CpuOf(daemon().pid()) - cpu) / window_length);
    idle_of_one = std::min(idle_of_one, 100.0 * (CpuOf(quiet.pid()) - cpu_of_one) / window_length);
  }

  // In turns.
  TimeRegistration(alone, alone_buffer, &warming);
  double ratio = 1e9;
  for (int round = 0; round < 5 && ratio > 1.2; ++round) {
    Latencies with_one;
    Latencies with_all;
    for (int i = 0; i < 1000; ++i) {
      TimeRegistration(alone, alone_buffer, &with_one);
      TimeRegistration(*clients[0], buffers[0], &with_all);
    }
    ratio = std::min(ratio, with_all.p50() / with_one.p50());
    printf("register p50 %.1f us, of one session %.1f us\n", with_all.p50(), with_one.p50());
  }
  printf(
      "%.0f bytes a region; idle %.3f %% CPU, with one session %.3f; register p50 %.2f times one "
      "session's\n",
      each, idle, idle_of_one, ratio);
  if (!kSanitized) {
    EXPECT_LE(each, kBytesARegion);
    EXPECT_LE(idle, most());
    EXPECT_LE(ratio, 1.2);
  }
  for (const auto& client : clients) client->HangUp();
}

}  // namespace
}  // namespace mrd::e2e
