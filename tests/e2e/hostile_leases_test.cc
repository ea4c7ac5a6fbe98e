// Clients that mean harm by leases and names: bounded, told why, and nobody else is disturbed.
#include <atomic>
#include <thread>

#include "tests/e2e/daemon_test.h"
#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

class HostileLeasesTest : public EachFabricTest {
 protected:
  // Calls of another session until the end: the slowest.
  class Witness {
   public:
    Witness(const std::string& dir, const Memory& memory)
        : client_(dir),
          memory_(memory),
          buffer_(client_.Pass(memory)),
          thread_([this] { Run(); }) {}
    ~Witness() { End(); }
    milliseconds End() {
      over_ = true;
      if (thread_.joinable()) thread_.join();
      return slowest_;
    }

   private:
    void Run() {
      while (!over_) {
        const auto began = Clock::now();
        const auto made = client_.Register(RequestFor(buffer_, memory_));
        ASSERT_TRUE(made.ok()) << made.text();
        ASSERT_TRUE(client_.Deregister({made.response.leases(0).lease_id()}).ok());
        slowest_ =
            std::max(slowest_, std::chrono::duration_cast<milliseconds>(Clock::now() - began));
        std::this_thread::sleep_for(milliseconds(1));
      }
    }

    RawClient client_;
    const Memory& memory_;
    const uint64_t buffer_;
    std::atomic<bool> over_ = false;
    milliseconds slowest_{0};
    std::thread thread_;
  };

  const Memory memory_{kPage};
};
MRD_ON_EACH_FABRIC(HostileLeasesTest);

TEST_P(HostileLeasesTest, AFloodOfEventsThatNobodyReadsCostsNobodyElseAndNoMemory) {
  StartThis({.policy = "rules { name: \"short\" ttl { min { nanos: 1000000 } } }"});
  RawClient flood(dir());
  const uint64_t buffer = flood.Pass(memory_);
  Witness witness(dir(), memory_);
  v1::RegisterRequest request = RequestFor(buffer, memory_);
  request.mutable_ttl()->set_nanos(1000000);
  while (request.ranges_size() < 1000) *request.add_ranges() = request.ranges(0);
  const auto some = [&](int calls) {
    for (int i = 0; i < calls; ++i) {
      const auto made = flood.Register(request);
      ASSERT_TRUE(made.ok()) << made.text();
    }
    ASSERT_TRUE(WaitUntil(kPatience, [&] { return flood.ListLeases().response.leases().empty(); }));
  };
  // As many at one time as in what follows: the heap keeps what that took.
  some(Scaled(200));
  const uint64_t before = daemon().Pss();
  some(Scaled(200));
  const uint64_t after = daemon().Pss();
  const milliseconds slowest = witness.End();
  printf("%llu bytes, then %llu; the slowest other call took %lld ms\n",
         static_cast<unsigned long long>(before), static_cast<unsigned long long>(after),
         static_cast<long long>(slowest.count()));
  if (!kSanitized) {
    EXPECT_LE(after, before + (16 << 20));  // 100 bytes a lease that lapsed would be more.
  }
  EXPECT_LT(slowest, Promised(milliseconds(500)));
  // It learns of its loss when it reads at last.
  bool lost = false;
  while (const auto packet = flood.attach().Receive(lost ? milliseconds(100) : kPatience)) {
    ASSERT_TRUE(packet->has_event());
    lost |= packet->event().kind() == v1::AttachEvent::EVENTS_LOST;
  }
  EXPECT_TRUE(lost);
}

TEST_P(HostileLeasesTest, TenThousandLeaseIdsInOneRenewalTakeMilliseconds) {
  StartThis();
  RawClient owner(dir());
  RawClient thief(dir());
  Witness witness(dir(), memory_);
  v1::RegisterRequest request = RequestFor(owner.Pass(memory_), memory_);
  request.mutable_ttl()->set_seconds(3600);
  while (request.ranges_size() < 10000) *request.add_ranges() = request.ranges(0);
  const auto made = owner.Register(request);
  ASSERT_TRUE(made.ok()) << made.text();
  std::vector<uint64_t> ids;
  for (const v1::Lease& lease : made.response.leases()) ids.push_back(lease.lease_id());
  for (int i = 0; i < Scaled(100); ++i) {
    ASSERT_EQ(owner.Renew(ids).response.renewed(), 10000u);
    // All of them another's: refused at the first.
    ASSERT_EQ(thief.Renew(ids).reason(), v1::LEASE_UNKNOWN);
    ASSERT_EQ(thief.Deregister(ids).reason(), v1::LEASE_UNKNOWN);
  }
  // The same one over and over, and one foreign id at the very end.
  ASSERT_TRUE(owner.Renew(std::vector<uint64_t>(10000, ids[0])).ok());
  std::vector<uint64_t> mixed(9999, ids[0]);
  mixed.push_back(1);
  ASSERT_EQ(owner.Renew(mixed).reason(), v1::LEASE_UNKNOWN);
  EXPECT_LT(witness.End(), Promised(milliseconds(500)));
  EXPECT_EQ(owner.ListLeases().response.leases_size(), 1000) << "a page of those that stand";
}

TEST_P(HostileLeasesTest, NamesWithControlCharactersAreRefusedAndNeverRepeatedRaw) {
  StartThis();
  RawClient client(dir());
  const uint64_t buffer = client.Pass(memory_);
  const auto readable = [](const auto& refused) {
    for (const unsigned char c : refused.text()) {
      if (c < ' ' || c == 0x7f) return false;
    }
    return true;
  };
  for (const std::string& name :
       {std::string("a\nb"), std::string("\x1b[2J"), std::string("nul\0in it", 9),
        std::string("\xc2\x9b"
                    "2J"),
        std::string("../../etc/passwd"), std::string(65, 'x'), std::string(300000, 'y'),
        std::string(1000, '\x01')}) {
    SCOPED_TRACE(name.substr(0, 20));
    auto request = RequestFor(buffer, memory_);
    request.set_domain(name);
    auto refused = client.Register(request);
    EXPECT_EQ(refused.reason(), v1::DOMAIN_UNKNOWN) << refused.text();
    EXPECT_TRUE(readable(refused)) << refused.text();
    EXPECT_LT(refused.text().size(), 2000u);
    request.clear_domain();
    request.add_devices(name);
    refused = client.Register(request);
    EXPECT_EQ(refused.reason(), v1::DEVICE_UNKNOWN) << refused.text();
    EXPECT_TRUE(readable(refused)) << refused.text();
    EXPECT_LT(refused.text().size(), 2000u);
    EXPECT_EQ(client.OpenDomain(name).reason(), v1::REQUEST_INVALID);
    const auto closed = client.CloseDomain(name);
    EXPECT_EQ(closed.reason(), v1::DOMAIN_UNKNOWN) << closed.text();
    EXPECT_TRUE(readable(closed)) << closed.text();
    EXPECT_LT(closed.text().size(), 2000u);
    const auto listening = client.Listen(name);
    EXPECT_FALSE(listening.ok());
    EXPECT_TRUE(readable(listening)) << listening.text();
    EXPECT_LT(listening.text().size(), 2000u);
  }
  for (const unsigned char c : daemon().Log()) {
    ASSERT_TRUE(c >= ' ' || c == '\n') << "a control character in the log";
  }
}

TEST_P(HostileLeasesTest, NamesOfTenMegabytesAreRefusedAndTheSessionGoesOn) {
  StartThis();
  RawClient client(dir());
  Witness witness(dir(), memory_);
  const uint64_t buffer = client.Pass(memory_);
  const std::string name(10 << 20, 'n');
  uint64_t before = 0;
  for (int i = 0; i < 20; ++i) {
    if (i == 10) before = daemon().Pss();  // By then gRPC has the buffers that it keeps.
    auto request = RequestFor(buffer, memory_);
    request.set_domain(name);
    EXPECT_EQ(client.Register(request).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    request.clear_domain();
    request.set_request_id(name);
    EXPECT_EQ(client.Register(request).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    request.clear_request_id();
    request.add_devices(name);
    EXPECT_EQ(client.Register(request).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_EQ(client.OpenDomain(name).status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
  if (!kSanitized) {
    EXPECT_LE(daemon().Pss(), before + (16 << 20));
  }
  EXPECT_TRUE(client.Register(RequestFor(buffer, memory_)).ok());
  EXPECT_LT(witness.End(), Promised(milliseconds(500)));
}

TEST_P(HostileLeasesTest, NamesOfSessionsAreShortAndPrintable) {
  StartThis();
  for (const std::string& name : {std::string("a\nb"), std::string("\x1b[2J"), std::string(65, 'x'),
                                  std::string(3000, 'x'), std::string("nul\0", 4)}) {
    const AttachSocket socket(dir() + "/attach.sock");
    ASSERT_TRUE(socket.SendHello(name));
    EXPECT_EQ(socket.ReceiveRefusal(), v1::REQUEST_INVALID);
  }
  const AttachSocket socket(dir() + "/attach.sock");
  const std::string long_name(10 << 20, 'x');
  // The kernel may have no packets of that size.
  if (send(socket.fd(), long_name.data(), long_name.size(), MSG_NOSIGNAL) > 0) {
    EXPECT_TRUE(socket.HangsUp());
  }
  EXPECT_TRUE(RawClient(dir()).GetStatus().ok());
}

}  // namespace
}  // namespace mrd::e2e
