// HTTP/2 clients that make gRPC keep, or do, what no call and no token is needed for (RFC 9113,
// 10.5). Each is ended; the daemon stays small, serves others, and ends when it is told to.
#include <sys/socket.h>

#include <thread>

#include "tests/e2e/http2.h"
#include "tests/e2e/refusal.h"

namespace mrd::e2e {
namespace {

constexpr char kGetStatus[] = "/mrd.v1.Sessions/GetStatus";
constexpr char kListLeases[] = "/mrd.v1.Registration/ListLeases";
constexpr unsigned char kEndStream = 1;
constexpr unsigned char kEndHeaders = 4;
constexpr unsigned char kAck = 1;
constexpr uint64_t kLittle = 16 << 20;

class Http2FloodsTest : public DaemonTest {
 protected:
  void StartSmall(const DaemonOptions& options = {}) {
    Start(options);
    other_.emplace(dir());
    ASSERT_TRUE(other_->GetStatus().ok());
    before_ = daemon().Pss();
  }

  void TearDown() override {
    other_.reset();
    DaemonTest::TearDown();
  }

  // The daemon has ended this connection, said why, and is as it was.
  void ExpectEnded(Http2& connection, const std::string& why) {
    EXPECT_TRUE(connection.IsClosed());
    EXPECT_TRUE(WaitUntil(kPatience, [&] {
      return daemon().Log().find("to mrd.sock is ended: " + why) != std::string::npos;
    })) << daemon().Log();
    ExpectUndisturbed();
  }

  void ExpectUndisturbed() {
    EXPECT_TRUE(other_->GetStatus().ok());
    if (kSanitized) return;  // A sanitizer keeps what is freed.
    // gRPC frees what a connection had a moment after it is over.
    uint64_t now = 0;
    EXPECT_TRUE(WaitUntil(kPatience, [&] { return (now = daemon().Pss()) < before_ + kLittle; }))
        << "it has grown by " << ((now - before_) >> 20) << " MiB";
  }

  // One that has read the daemon's SETTINGS and acknowledged them.
  std::unique_ptr<Http2> Acknowledged(uint32_t window = 65535) {
    auto connection = std::make_unique<Http2>(dir(), window);
    EXPECT_TRUE(connection->ReadType(Http2::kSettings));
    connection->Send({Http2::kSettings, kAck, 0, ""});
    connection->Send({Http2::kWindowUpdate, 0, 0, Http2::BigEndian(1 << 30, 4)});
    return connection;
  }

  // Sends it until the connection is over, at most so often.
  static void Flood(Http2& connection, const std::string& bytes, int most) {
    for (int i = 0; i < most && connection.SendBytes(bytes); ++i) {
    }
  }

  std::optional<RawClient> other_;
  uint64_t before_ = 0;
};

TEST_F(Http2FloodsTest, PingsOfAClientThatDoesNotRead) {
  StartSmall();
  Http2 connection(dir());
  std::string pings;
  for (int i = 0; i < 600; ++i) pings += Http2::Encode({Http2::kPing, 0, 0, "12345678"});
  Flood(connection, pings, 100);
  EXPECT_TRUE(connection.IsClosed());  // By the guard, or by gRPC where it can still send.
  ExpectUndisturbed();
}

TEST_F(Http2FloodsTest, Settings) {
  StartSmall();
  Http2 connection(dir());
  Flood(connection, Http2::Encode({Http2::kSettings, 0, 0, ""}), 50000);
  ExpectEnded(connection, "too many PING and SETTINGS frames");
}

TEST_F(Http2FloodsTest, CallsBeforeTheirNumberIsAcknowledged) {
  StartSmall();
  Http2 connection(dir());
  const std::string headers = Http2::CallHeaders(kGetStatus, "");
  for (uint32_t stream = 1; stream < 40000; stream += 2) {
    if (!connection.Send({Http2::kHeaders, kEndHeaders, stream, headers})) break;
  }
  ExpectEnded(connection, "more calls than may run at once");
}

TEST_F(Http2FloodsTest, AnAcknowledgementAheadOfTheSettings) {
  StartSmall();
  // In one piece: it is there when gRPC first reads.
  const std::string ahead = Http2::kPreface + Http2::Encode({Http2::kSettings, 0, 0, ""}) +
                            Http2::Encode({Http2::kSettings, kAck, 0, ""});
  const std::string headers = Http2::CallHeaders(kGetStatus, "");
  for (int i = 0; i < 20; ++i) {
    const UniqueFd fd(Connect(dir() + "/mrd.sock", SOCK_STREAM));
    std::string calls = ahead;
    for (uint32_t stream = 1; stream < 8000; stream += 2) {
      calls += Http2::Encode({Http2::kHeaders, kEndHeaders, stream, headers});
    }
    size_t sent = 0;
    while (sent < calls.size()) {
      const ssize_t each = send(fd.get(), calls.data() + sent, calls.size() - sent, MSG_NOSIGNAL);
      if (each <= 0) break;
      sent += each;
    }
    EXPECT_LT(sent, calls.size()) << "it is ended before that";
  }
  // By the guard, or by gRPC where it was quicker with its settings.
  ExpectUndisturbed();
}

TEST_F(Http2FloodsTest, HeadersWithoutAnEnd) {
  StartSmall();
  constexpr unsigned char kContinuation = 9;
  Http2 connection(dir());
  ASSERT_TRUE(connection.Send({Http2::kHeaders, 0, 1, Http2::CallHeaders(kGetStatus, "")}));
  std::string more;
  for (int i = 0; i < 100; ++i) {
    more += std::string("\0\x07x-never\x64", 10) + std::string(100, 'y');
  }
  Flood(connection, Http2::Encode({kContinuation, 0, 1, more}), 10000);
  ExpectEnded(connection, "metadata of more than 64 KiB");
}

TEST_F(Http2FloodsTest, CallsThatAreResetAtOnce) {
  StartSmall();
  const auto connection = Acknowledged();
  const std::string headers = Http2::CallHeaders(kGetStatus, "");
  for (uint32_t stream = 1; stream < 100000; stream += 2) {
    if (!connection->Send({Http2::kHeaders, kEndHeaders | kEndStream, stream, headers})) break;
    if (!connection->Send({Http2::kResetStream, 0, stream, Http2::BigEndian(8, 4)})) break;
  }
  ExpectEnded(*connection, "too many calls that are reset");
}

TEST_F(Http2FloodsTest, CallsAfterWhichSomeAreCancelledGoOn) {
  StartSmall();
  const auto connection = Acknowledged();
  for (uint32_t stream = 1; stream < 1000; stream += 2) {
    ASSERT_TRUE(connection->Call(stream, kGetStatus, other_->token(), ""));
    if (stream % 4 == 1) {
      ASSERT_TRUE(connection->Send({Http2::kResetStream, 0, stream, Http2::BigEndian(8, 4)}));
    } else {
      ASSERT_TRUE(connection->ReadType(Http2::kData)) << "stream " << stream;
    }
  }
  ExpectUndisturbed();
}

TEST_F(Http2FloodsTest, GoAways) {
  StartSmall();
  Http2 connection(dir());
  Flood(connection, Http2::Encode({Http2::kGoAway, 0, 0, std::string(8, '\0')}), 50000);
  ExpectEnded(connection, "too many GOAWAY frames");
}

TEST_F(Http2FloodsTest, EmptyData) {
  StartSmall();
  const auto connection = Acknowledged();
  ASSERT_TRUE(connection->Send(
      {Http2::kHeaders, kEndHeaders, 1, Http2::CallHeaders(kGetStatus, other_->token())}));
  Flood(*connection, Http2::Encode({Http2::kData, 0, 1, ""}), 50000);
  ExpectEnded(*connection, "too many frames that bring nothing on");
}

TEST_F(Http2FloodsTest, CallsThatNeverEndOnManyConnections) {
  StartSmall();
  const std::string headers = Http2::CallHeaders(kGetStatus, "");
  std::vector<std::unique_ptr<Http2>> connections;
  for (int i = 0; i < 60; ++i) {  // 7,200 calls.
    connections.push_back(Acknowledged());
    for (uint32_t stream = 1; stream < 240; stream += 2) {
      if (!connections.back()->Send({Http2::kHeaders, kEndHeaders, stream, headers})) break;
    }
  }
  EXPECT_TRUE(WaitUntil(kPatience, [&] {
    return daemon().Log().find("more calls than a user may have under way") != std::string::npos;
  }));
  const uint64_t now = daemon().Pss();
  printf("%llu MiB more\n", static_cast<unsigned long long>((now - before_) >> 20));
  connections.clear();
  // They count no more.
  EXPECT_TRUE(WaitUntil(kPatience, [&] { return other_->GetStatus().ok(); }));
}

TEST_F(Http2FloodsTest, DescriptorsOnTheGrpcSocket) {
  StartSmall();
  const UniqueFd connection(Connect(dir() + "/mrd.sock", SOCK_STREAM));
  const size_t fds = daemon().resources().fds;
  const std::string bytes = Http2::kPreface;
  const int passed[] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof passed)] = {};
  iovec piece{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof passed);
  memcpy(CMSG_DATA(part), passed, sizeof passed);
  ASSERT_GT(sendmsg(connection.get(), &message, 0), 0);
  char answer[4096];
  while (recv(connection.get(), answer, sizeof answer, 0) > 0) {
  }  // Until it is closed.
  EXPECT_TRUE(WaitUntil(kPatience, [&] {
    return daemon().Log().find("descriptors, which belong to the attach socket") !=
               std::string::npos &&
           daemon().resources().fds <= fds;
  })) << daemon().Log();
}

class UnreadTest : public Http2FloodsTest {
 protected:
  void TearDown() override {
    client_.reset();
    Http2FloodsTest::TearDown();
  }

  // A session whose list of leases has more than 40 kB.
  void StartWithLeases(const DaemonOptions& options = {}) {
    StartSmall(options);
    client_.emplace(dir());
    auto request = RequestFor(client_->Pass(memory_), memory_);
    for (int i = 1; i < 1000; ++i) *request.add_ranges() = request.ranges(0);
    ASSERT_TRUE(client_->Register(request).ok());
  }

  void ListOften(Http2& connection) {
    for (uint32_t stream = 1; stream < 200; stream += 2) {
      ASSERT_TRUE(connection.Call(stream, kListLeases, client_->token(), ""));
    }
  }

  void ExpectQuickEnd() {
    std::this_thread::sleep_for(milliseconds(200));
    const auto began = Clock::now();
    Stop();
    EXPECT_LT(Clock::now() - began, Promised(seconds(2)));
  }

  const Memory memory_{kPage};
  std::optional<RawClient> client_;
};

TEST_F(UnreadTest, TheDaemonEndsThoughASocketIsFull) {
  StartWithLeases();
  const auto connection = Acknowledged(/*window=*/1 << 30);
  ListOften(*connection);
  ExpectQuickEnd();
}

TEST_F(UnreadTest, TheDaemonEndsThoughThereIsNoWindow) {
  StartWithLeases();
  const auto connection = Acknowledged(/*window=*/0);
  ListOften(*connection);
  ExpectQuickEnd();
}

TEST_F(UnreadTest, AnswersTakeBoundedMemory) {
  constexpr uint64_t kMost = 32 << 20;
  StartWithLeases({.set = "rpc_memory=" + std::to_string(kMost)});
  // 4,000 answers, none of which can go out. The oldest are cancelled: their calls are free again.
  std::vector<std::unique_ptr<Http2>> deaf;
  for (int i = 0; i < 40; ++i) {
    deaf.push_back(Acknowledged(/*window=*/0));
    ListOften(*deaf.back());
  }
  const auto until = Clock::now() + seconds(3);
  uint64_t most = 0;
  while (Clock::now() < until) {
    most = std::max(most, daemon().Pss());
    ASSERT_TRUE(other_->GetStatus().ok());
  }
  most -= std::min(most, before_);
  printf("at most %llu MiB more\n", static_cast<unsigned long long>(most >> 20));
  if (!kSanitized) {  // A sanitizer needs several times as much.
    EXPECT_LT(most, 3 * kMost);
  }
}

}  // namespace
}  // namespace mrd::e2e
