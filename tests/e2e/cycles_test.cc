// S06: what comes and goes leaves nothing: the daemon's memory, descriptors and mappings stay flat.
#include <random>
#include <sstream>
#include <thread>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

class CyclesTest : public EachFabricTest {
 protected:
  // So many regions, of many sizes, a few a call; every other call can be repeated. Its buffers
  // come and go too.
  void Cycle(RawClient& client, unsigned seed, int regions) {
    std::mt19937 random(seed);
    std::vector<Memory> memories;
    std::vector<uint64_t> ids;
    for (const uint64_t pages : {1, 2, 7, 64, 700}) {
      memories.emplace_back(pages * kPage);
      ids.push_back(client.Pass(memories.back()));
    }
    for (int call = 0; regions > 0; ++call) {
      v1::RegisterRequest request;
      request.mutable_access()->set_preset(v1::Access::REG_WRITE);
      if (call % 2 == 0) {
        request.set_request_id(std::to_string(seed) + " " + std::to_string(call));
      }
      for (int ranges = 1 + static_cast<int>(random() % 16); ranges > 0; --ranges, --regions) {
        const size_t which = random() % memories.size();
        const Memory& memory = memories[which];
        const uint64_t offset = random() % memory.size();
        const uint64_t length = 1 + random() % (memory.size() - offset);
        AddRange(&request, ids[which], memory.addr() + offset, length, offset);
      }
      const auto made = client.Register(request);
      ASSERT_TRUE(made.ok()) << made.text();
      std::vector<uint64_t> leases;
      for (const v1::Lease& lease : made.response.leases()) leases.push_back(lease.lease_id());
      ASSERT_TRUE(client.Deregister(leases).ok());
      if (call % 10 == 0) {
        const size_t which = random() % memories.size();
        ASSERT_TRUE(client.Release({ids[which]}).ok());
        ids[which] = client.Pass(memories[which]);
      }
    }
    ASSERT_TRUE(client.Release(ids).ok());
  }

  // Its own, without the pages of clients.
  uint64_t Anonymous() {
    std::istringstream status(ReadFile("/proc/" + std::to_string(daemon().pid()) + "/status"));
    std::string word;
    while (status >> word && word != "RssAnon:") {
    }
    uint64_t kib = 0;
    status >> kib;
    Require(kib > 0, "RssAnon of the daemon");
    return kib << 10;
  }
};
MRD_ON_EACH_FABRIC(CyclesTest);

TEST_P(CyclesTest, S06TwoHundredThousandLeaveMemoryDescriptorsAndMappingsFlat) {
  StartThis();
  constexpr int kSessions = 4;
  const int half = Scaled(100000) / kSessions;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kSessions; ++i) clients.push_back(std::make_unique<RawClient>(dir()));
  // With its protection domain, which stays.
  for (const auto& client : clients) Cycle(*client, 0, 1);
  const Holdings before = Look();
  const auto cycle = [&](unsigned seed) {
    std::vector<std::thread> running;
    for (int i = 0; i < kSessions; ++i) {
      running.emplace_back([&, i] { Cycle(*clients[i], seed + i, half); });
    }
    for (std::thread& each : running) each.join();
    ExpectHoldings(before);
  };
  // By then each session has all that it remembers of requests.
  cycle(1);
  const uint64_t memory = Anonymous();
  const size_t mappings = daemon().resources().mappings;
  cycle(100);
  const uint64_t after = Anonymous();
  const size_t mappings_after = daemon().resources().mappings;
  printf("%d cycles: %llu bytes and %zu mappings, then %llu and %zu\n", 2 * half * kSessions,
         static_cast<unsigned long long>(memory), mappings, static_cast<unsigned long long>(after),
         mappings_after);
  if (kSanitized) return;  // A sanitizer keeps what was freed, and maps memory of its own.
  EXPECT_LE(after, memory + memory / 10 + (1 << 20));
  EXPECT_LE(mappings_after, mappings + 16);
}

}  // namespace
}  // namespace mrd::e2e
