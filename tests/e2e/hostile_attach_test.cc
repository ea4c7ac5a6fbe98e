// Hostile packets on the attach socket cost their sender its session, and nobody else anything.
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "tests/e2e/daemon_test.h"

namespace mrd::e2e {
namespace {

class HostileAttachTest : public DaemonTest {
 protected:
  void SetUp() override {
    Start();
    bystander_ = std::make_unique<RawClient>(dir(), RawClient::Options{.name = "bystander"});
    lease_ = bystander_->RegisterAll(memory_);
    quiet_ = Look();
  }
  void TearDown() override {
    EXPECT_EQ(bystander_->ListLeases().response.leases_size(), 1);
    EXPECT_TRUE(bystander_->Deregister({lease_.lease_id()}).ok());
    bystander_ = nullptr;
    DaemonTest::TearDown();
  }
  // Its session ends, with what it had, and no other.
  void ExpectItsEnd(RawClient& client) {
    EXPECT_TRUE(client.attach().HangsUp(Promised(seconds(1))));
    EXPECT_TRUE(WaitUntil(Promised(seconds(1)),
                          [&] { return client.GetStatus().reason() == v1::SESSION_UNKNOWN; }));
    ExpectHoldings(quiet_);
    EXPECT_TRUE(bystander_->GetStatus().ok());
  }
  std::string BuffersPacket(int ids) {
    v1::ClientPacket packet;
    for (int i = 1; i <= ids; ++i) packet.mutable_pass_buffers()->add_buffer_ids(i);
    return packet.SerializeAsString();
  }
  std::vector<int> Fds(size_t count) { return std::vector<int>(count, memory_.fd()); }

  const Memory memory_{kPage};
  std::unique_ptr<RawClient> bystander_;
  v1::Lease lease_;
  Holdings quiet_;
};

TEST_F(HostileAttachTest, TooManyOrTooFewDescriptorsForTheIds) {
  const struct {
    int ids;
    size_t fds;
  } cases[] = {{1, 0}, {2, 1}, {1, 2}, {0, 1}, {64, 63}, {63, 64}};
  for (const auto& each : cases) {
    SCOPED_TRACE(std::to_string(each.ids) + " ids, " + std::to_string(each.fds));
    RawClient client(dir());
    client.RegisterAll(memory_);
    client.attach().SendBytes(BuffersPacket(each.ids), Fds(each.fds));
    ExpectItsEnd(client);
  }
}

TEST_F(HostileAttachTest, MoreDescriptorsThanAPacketMayHave) {
  for (const int count : {65, 128, 253}) {  // The kernel sends no more.
    SCOPED_TRACE(count);
    RawClient client(dir());
    client.attach().SendBytes(BuffersPacket(count), Fds(count));
    ExpectItsEnd(client);
  }
}

TEST_F(HostileAttachTest, ABufferIdTwiceOrZero) {
  RawClient same_packet(dir());
  same_packet.attach().SendBuffers({5, 5}, Fds(2));
  ExpectItsEnd(same_packet);
  RawClient two_packets(dir());
  two_packets.attach().SendBuffers({5}, Fds(1));
  two_packets.attach().SendBuffers({5}, Fds(1));
  ExpectItsEnd(two_packets);
  RawClient zero(dir());
  zero.attach().SendBuffers({0}, Fds(1));
  ExpectItsEnd(zero);
}

TEST_F(HostileAttachTest, PacketsThatAreTooLong) {
  RawClient client(dir());
  client.attach().SendBytes(std::string(4097, 'x'), Fds(3));
  ExpectItsEnd(client);
  RawClient longer(dir());
  longer.attach().SendBytes(std::string(100000, '\0'));
  ExpectItsEnd(longer);
}

TEST_F(HostileAttachTest, TruncatedPackets) {
  const std::string whole = BuffersPacket(20);
  for (size_t length = 1; length < whole.size(); length += 3) {
    SCOPED_TRACE(length);
    RawClient client(dir());
    client.attach().SendBytes(whole.substr(0, length), Fds(20));
    ExpectItsEnd(client);
  }
}

TEST_F(HostileAttachTest, AnEmptyPacketWithOrWithoutDescriptors) {
  RawClient with(dir());
  with.attach().SendBytes("", Fds(1));
  ExpectItsEnd(with);
  RawClient without(dir());
  without.attach().SendBytes("");
  ExpectItsEnd(without);
}

TEST_F(HostileAttachTest, MessagesAtTheWrongTime) {
  RawClient hello_again(dir());
  hello_again.attach().SendHello();
  ExpectItsEnd(hello_again);
  RawClient answer(dir());
  answer.attach().SendAnswer("nobody asked");
  ExpectItsEnd(answer);
}

TEST_F(HostileAttachTest, GarbageBeforeAttachingIsRefused) {
  std::mt19937 random(7);
  for (int i = 0; i < Scaled(300); ++i) {
    const AttachSocket socket(dir() + "/attach.sock");
    std::string bytes(random() % 300 + 1, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    socket.SendBytes(bytes, Fds(random() % 4));
    ASSERT_TRUE(socket.HangsUp());
  }
  ExpectHoldings(quiet_);
}

TEST_F(HostileAttachTest, GarbageInASessionEndsIt) {
  std::mt19937 random(8);
  for (int i = 0; i < Scaled(50); ++i) {
    RawClient client(dir());
    std::string bytes(random() % 300 + 1, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    client.attach().SendBytes(bytes, Fds(random() % 4));
    ASSERT_TRUE(client.attach().HangsUp());
  }
  ExpectHoldings(quiet_);
}

TEST_F(HostileAttachTest, DescriptorsWithAHello) {
  const AttachSocket two(dir() + "/attach.sock");
  two.SendHello("two", Fds(2));
  EXPECT_EQ(two.ReceiveRefusal(), v1::REQUEST_INVALID);
  EXPECT_TRUE(two.HangsUp());
  {
    // One that is no pidfd: the kernel gives a better one, so it is not looked at.
    RawClient one(dir(), {.name = "one", .hello_fds = Fds(1)});
    EXPECT_TRUE(one.GetStatus().ok());
  }
  ExpectHoldings(quiet_);
}

TEST_F(HostileAttachTest, ManyConnectionsThatSayNothingKeepNobodyOut) {
  std::vector<AttachSocket> silent;
  for (int i = 0; i < 200; ++i) silent.emplace_back(dir() + "/attach.sock");
  const auto began = Clock::now();
  RawClient client(dir());
  EXPECT_TRUE(client.GetStatus().ok());
  EXPECT_LT(Clock::now() - began, Promised(seconds(1)));
  for (const AttachSocket& socket : silent) EXPECT_TRUE(socket.HangsUp());
}

class FewDescriptorsTest : public DaemonTest {};

TEST_F(FewDescriptorsTest, ConnectionsThatSayNothingTakeTheirShareOfThemOnly) {
  constexpr size_t kAll = 1024;
  Start({.set = "nofile=" + std::to_string(kAll)});
  std::vector<AttachSocket> silent;
  for (int i = 0; i < 400; ++i) silent.emplace_back(dir() + "/attach.sock");
  EXPECT_TRUE(silent.back().HangsUp(seconds(2))) << "it is one too many";
  // A 16th each of connections that may attach and of others, two descriptors each; and a few of
  // gRPC connections, which the baseline leaves out.
  EXPECT_LE(daemon().resources().fds, baseline().fds + kAll / 4 + 8);
  EXPECT_FALSE(silent.front().HangsUp(milliseconds(10)));
}

TEST_F(HostileAttachTest, AClientThatNeverReadsItsEventsCostsOnlyItself) {
  RawClient mute(dir(), {.name = "mute"});
  RawClient peer(dir());
  const auto listener = mute.Listen("").response.endpoint();
  // Each connection that comes and goes is an event for the one that listens.
  for (int i = 0; i < Scaled(400); ++i) {
    std::thread accepting([&] { mute.Accept(listener.endpoint_id(), kPatience); });
    const auto connected = peer.Connect("127.0.0.1", listener.local_port());
    accepting.join();
    ASSERT_TRUE(connected.ok()) << connected.text();
    ASSERT_TRUE(peer.Disconnect(connected.response.endpoint().endpoint_id()).ok());
  }
  EXPECT_TRUE(bystander_->GetStatus().ok());
  EXPECT_TRUE(mute.GetStatus().ok());
  // What it reads at last is in order, and a gap shows what it missed.
  uint64_t last = 0;
  while (const auto packet = mute.attach().Receive(milliseconds(200))) {
    ASSERT_TRUE(packet->has_event());
    EXPECT_GT(packet->event().sequence(), last);
    last = packet->event().sequence();
  }
  EXPECT_GT(last, 0u);
}

}  // namespace
}  // namespace mrd::e2e
