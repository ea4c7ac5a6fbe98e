// S17: a client changes its memory under the daemon, before, during and after registering it.
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

class TruncateTest : public EachFabricTest {
 protected:
  void PunchAll(const Memory& memory) {
    ASSERT_EQ(fallocate(memory.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        static_cast<off_t>(memory.size())),
              0);
  }
};
MRD_ON_EACH_FABRIC(TruncateTest);

TEST_P(TruncateTest, S17TruncatedBeforeIsRefused) {
  for (const char* unsealed : {"unsealed=0", "unsealed=1"}) {
    const DaemonProcess other({.fabric = GetParam(), .set = unsealed});
    RawClient client(other.dir());
    const Memory memory(4 * kPage, {.sealed = false});
    ASSERT_EQ(ftruncate(memory.fd(), 0), 0);
    const auto answer = client.Register(RequestFor(client.Pass(memory), memory));
    ExpectRefusal(answer, v1::OUT_OF_RANGE);
  }
}

TEST_P(TruncateTest, S17TruncatedBetweenTheBuffersArrivalAndTheCall) {
  StartThis({.set = "unsealed=1"});
  RawClient client(dir());
  const Memory memory(4 * kPage, {.sealed = false});
  const uint64_t id = client.Pass(memory);
  // It has been looked at, and used.
  const auto first = client.Register(RequestFor(id, memory));
  ASSERT_TRUE(first.ok()) << first.text();
  ASSERT_EQ(ftruncate(memory.fd(), 0), 0);
  // Its size is known from before: whatever is found now, it is a refusal and no death.
  const auto second = client.Register(RequestFor(id, memory));
  EXPECT_FALSE(second.ok());
  EXPECT_NE(second.reason(), v1::REASON_UNSPECIFIED) << second.text();
  EXPECT_TRUE(client.Deregister({first.response.leases(0).lease_id()}).ok());
}

TEST_P(TruncateTest, S17SealedMemoryCannotBeTruncatedAtAll) {
  StartThis();
  RawClient client(dir());
  const Memory memory(4 * kPage);
  client.RegisterAll(memory);
  EXPECT_NE(ftruncate(memory.fd(), 0), 0);
  EXPECT_EQ(errno, EPERM);
}

TEST_P(TruncateTest, S17TruncatedAfterwardsHurtsTheClientOnly) {
  StartThis({.set = "unsealed=1"});
  RawClient client(dir());
  RawClient other(dir());
  const Memory memory(1 << 20, {.sealed = false});
  const v1::Lease lease = client.RegisterAll(memory);
  ASSERT_EQ(ftruncate(memory.fd(), 0), 0);
  EXPECT_TRUE(other.GetStatus().ok());
  EXPECT_TRUE(client.Deregister({lease.lease_id()}).ok());
  EXPECT_TRUE(client.GetStatus().ok());
}

TEST_P(TruncateTest, S17HolesPunchedBeforeAreNotPopulatedAndAfterwardsTheClientsOwnLoss) {
  StartThis();
  RawClient client(dir());
  const Memory memory(1 << 20);
  const uint64_t id = client.Pass(memory);
  const auto lease = client.Register(RequestFor(id, memory));
  ASSERT_TRUE(lease.ok());
  PunchAll(memory);
  ExpectRefusal(client.Register(RequestFor(id, memory)), v1::NOT_POPULATED);
  EXPECT_TRUE(client.Deregister({lease.response.leases(0).lease_id()}).ok());
}

TEST_P(TruncateTest, S17TheDaemonLivesWhileTheMemoryComesAndGoes) {
  StartThis({.set = "unsealed=1"});
  const Memory memory(1 << 20, {.sealed = false});
  const auto size = static_cast<off_t>(memory.size());
  std::atomic<bool> stop = false;
  std::thread vandal([&] {
    while (!stop) {
      Require(ftruncate(memory.fd(), 0) == 0, "ftruncate");
      Fill(memory.fd(), size);
      Require(fallocate(memory.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size) == 0,
              "punch");
      Fill(memory.fd(), size);
    }
  });
  int taken = 0;
  int refused = 0;
  const int rounds = Scaled(1000);
  for (int i = 0; i < rounds; ++i) {
    RawClient client(dir());  // Each maps it anew.
    for (int k = 0; k < 3; ++k) {
      const auto answer = client.Register(RequestFor(client.Pass(memory), memory));
      if (answer.ok()) {
        ++taken;
        continue;
      }
      ++refused;
      const v1::Reason reason = answer.reason();
      EXPECT_TRUE(reason == v1::OUT_OF_RANGE || reason == v1::NOT_POPULATED ||
                  reason == v1::DEVICE_ERROR || reason == v1::ADDRESS_UNUSABLE)
          << answer.text();
    }
    if (taken > 100 && refused > 100) break;
  }
  stop = true;
  vandal.join();
  EXPECT_GT(taken, 0) << "or this has shown nothing";
  EXPECT_GT(refused, 0);
  ASSERT_FALSE(daemon().process().Wait(milliseconds(0))) << "the daemon lives";
}

}  // namespace
}  // namespace mrd::e2e
