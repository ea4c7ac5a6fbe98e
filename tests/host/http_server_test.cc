// The metrics' address against peers that mean it ill: whoever means it well is answered.
#include "daemon/host/metrics/http_server.h"

#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "daemon/host/metrics/http_request.h"
#include "tests/host/temporary_dir.h"

namespace mrd::host {
namespace {

using std::chrono::milliseconds;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr milliseconds kWhole{2000};
constexpr milliseconds kPatience{20000};

class Peer {
 public:
  explicit Peer(const std::string& where) {
    sockaddr_storage storage{};
    socklen_t length;
    if (where.starts_with("unix:")) {
      auto* un = reinterpret_cast<sockaddr_un*>(&storage);
      un->sun_family = AF_UNIX;
      where.copy(un->sun_path, sizeof un->sun_path - 1, 5);
      length = sizeof *un;
    } else {
      auto* in = reinterpret_cast<sockaddr_in*>(&storage);
      in->sin_family = AF_INET;
      in->sin_port = htons(std::stoi(where.substr(where.rfind(':') + 1)));
      in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      length = sizeof *in;
    }
    fd_.reset(socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    connected_ = connect(fd_.get(), reinterpret_cast<sockaddr*>(&storage), length) == 0;
  }

  bool connected() const { return connected_; }
  int fd() const { return fd_.get(); }
  bool Send(const std::string& bytes) const {
    return send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // All until the end of the connection.
  std::string Read() const {
    std::string all;
    for (;;) {
      pollfd ready{fd_.get(), POLLIN, 0};
      if (poll(&ready, 1, kPatience.count()) != 1) return all + " (no end)";
      char bytes[65536];
      const ssize_t length = recv(fd_.get(), bytes, sizeof bytes, 0);
      if (length <= 0) return all;
      all.append(bytes, length);
    }
  }

 private:
  UniqueFd fd_;
  bool connected_ = false;
};

size_t Descriptors() {
  size_t count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir)) ++count;
  closedir(dir);
  return count;
}

class HttpServerTest : public testing::TestWithParam<const char*> {
 protected:
  void Start(std::string text = "mrd_up 1\n",
             HttpLimits limits = {.connections = 16, .whole = kWhole}) {
    page_ = std::make_unique<Page>([this, text = std::move(text)] {
      ++made_;
      return text;
    });
    const bool in_files = GetParam() == std::string("unix");
    auto socket = ListenSocket::Open(in_files ? "unix:" + (dir_ / "m.sock") : "127.0.0.1:0");
    ASSERT_TRUE(socket.ok()) << socket.status();
    server_ = std::make_unique<HttpServer>(*page_, *std::move(socket), disposer_, limits);
  }
  void TearDown() override {
    server_ = nullptr;
    EXPECT_EQ(dir_.files(), 0u);
  }

  std::string where() const { return server_->where(); }
  std::string Ask(const std::string& request) const {
    const Peer peer(where());
    EXPECT_TRUE(peer.Send(request));
    return peer.Read();
  }
  void ExpectServes() const {
    for (int i = 0; i < 5; ++i) ASSERT_THAT(Ask(kGet), StartsWith("HTTP/1.1 200 OK\r\n"));
  }

  TemporaryDir dir_;
  memory::Disposer disposer_;
  std::atomic<int> made_ = 0;
  std::unique_ptr<Page> page_;
  std::unique_ptr<HttpServer> server_;
};

INSTANTIATE_TEST_SUITE_P(, HttpServerTest, testing::Values("unix", "loopback"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(HttpServerTest, AnswersWithTheTextAndEndsTheConnection) {
  Start();
  EXPECT_EQ(Ask(kGet),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 9\r\nConnection: close\r\n\r\nmrd_up 1\n");
  EXPECT_THAT(Ask("HEAD /metrics HTTP/1.0\r\n\r\n"),
              testing::AllOf(HasSubstr("Content-Length: 9\r\n"), EndsWith("\r\n\r\n")));
  EXPECT_THAT(Ask("GET /metrics?x=1 HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 OK\r\n"));
}

TEST_P(HttpServerTest, ATextLargerThanAnySocketsBufferArrivesWhole) {
  const std::string text(32 << 20, 'x');
  Start(text, {.connections = 16, .whole = kPatience});
  const std::string answer = Ask(kGet);
  EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, text.size());
}

TEST_P(HttpServerTest, RefusesWhatIsNotThere) {
  Start();
  EXPECT_THAT(Ask("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\nContent-Length: 2\r\n\r\nab"),
              testing::AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD\r\n")));
  EXPECT_EQ(made_, 0);
}

TEST_P(HttpServerTest, GarbageIsRefusedAndKeepsNobody) {
  Start();
  for (const std::string& garbage :
       {std::string("\0\xff\x16\x03\x01\r\n", 7), std::string("GET /metrics\r\n"),
        std::string("GET /metrics HTTP/9.9\r\n"), std::string("\r\n"), std::string(" \r\n"),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        std::string("GET /\x1b[31m HTTP/1.1\r\n")}) {
    EXPECT_THAT(Ask(garbage), StartsWith("HTTP/1.1 400 ")) << garbage;
  }
  EXPECT_THAT(Ask(std::string(4096, 'x')), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Ask("GET /metrics HTTP/1.1\r\nx: " + std::string(5000, 'x')),
              StartsWith("HTTP/1.1 431 "));
  ExpectServes();
}

TEST_P(HttpServerTest, WhoSaysNothingOrSpeaksSlowlyIsEndedInTime) {
  Start();
  const auto before = std::chrono::steady_clock::now();
  const Peer mute(where());
  const Peer slow(where());
  std::thread drip([&] {
    for (const char byte : std::string(kGet)) {  // The last one would come after 3.5 s.
      if (!slow.Send({byte})) return;
      std::this_thread::sleep_for(milliseconds(100));
    }
  });
  ExpectServes();
  EXPECT_EQ(mute.Read(), "");
  EXPECT_EQ(slow.Read(), "");
  EXPECT_GE(std::chrono::steady_clock::now() - before, kWhole - milliseconds(200));
  drip.join();
  ExpectServes();
}

TEST_P(HttpServerTest, WhoNeverReadsIsEndedInTime) {
  Start(std::string(32 << 20, 'x'));
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 8; ++i) {
    peers.push_back(std::make_unique<Peer>(where()));
    ASSERT_TRUE(peers.back()->Send(kGet));
  }
  ExpectServes();
  std::this_thread::sleep_for(kWhole + milliseconds(500));
  for (const auto& peer : peers) EXPECT_LT(peer->Read().size(), size_t{32} << 20);
  ExpectServes();
}

TEST_P(HttpServerTest, ManyConnectionsHaveABoundAndNobodyIsKeptOut) {
  Start("x", {.connections = 16, .whole = kPatience});
  const size_t before = Descriptors();
  std::vector<std::unique_ptr<Peer>> peers;
  for (int i = 0; i < 200; ++i) {
    peers.push_back(std::make_unique<Peer>(where()));
    ASSERT_TRUE(peers.back()->connected());
    if (i % 20 == 0) ExpectServes();
  }
  ExpectServes();
  EXPECT_LE(Descriptors(), before + 200 + 16 + 2) << "200 of them are the peers'";
}

TEST_P(HttpServerTest, AFloodOfRequestsMakesNoTextMoreThanOnceASecond) {
  Start();
  const auto before = std::chrono::steady_clock::now();
  for (int i = 0; i < 500; ++i) Ask(kGet);
  const auto took = std::chrono::steady_clock::now() - before;
  EXPECT_LE(made_, took / std::chrono::seconds(1) + 2);
}

TEST_P(HttpServerTest, ItsEndWaitsForNoPeer) {
  Start(std::string(32 << 20, 'x'), {.connections = 16, .whole = kPatience});
  const Peer mute(where());
  const Peer unread(where());
  ASSERT_TRUE(unread.Send(kGet));
  ExpectServes();
  const auto before = std::chrono::steady_clock::now();
  server_ = nullptr;
  EXPECT_LT(std::chrono::steady_clock::now() - before, kPatience / 2);
  EXPECT_EQ(mute.Read(), "");
}

class UnixHttpServerTest : public HttpServerTest {};
INSTANTIATE_TEST_SUITE_P(, UnixHttpServerTest, testing::Values("unix"));

TEST_P(UnixHttpServerTest, DescriptorsThatAPeerSendsAreClosedElsewhere) {
  Start();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd reader(ends[0]);
  UniqueFd writer(ends[1]);
  const Peer peer(where());
  iovec data{const_cast<char*>(kGet), strlen(kGet)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  const int sent = writer.get();
  memcpy(CMSG_DATA(part), &sent, sizeof sent);
  ASSERT_GT(sendmsg(peer.fd(), &message, MSG_NOSIGNAL), 0);
  EXPECT_EQ(peer.Read(), "") << "its connection is ended";
  writer.reset();
  pollfd closed{reader.get(), POLLIN, 0};
  EXPECT_EQ(poll(&closed, 1, kPatience.count()), 1);
  EXPECT_TRUE((closed.revents & POLLHUP) != 0) << "nobody has it any more";
  ExpectServes();
}

TEST(HttpRequestTest, WaitsForTheWholeHeadAndNoLonger) {
  const std::string get = kGet;
  for (size_t length = 0; length < get.size(); ++length) {
    EXPECT_FALSE(AnswerTo(get.substr(0, length))) << length;
  }
  ASSERT_TRUE(AnswerTo(get));
  EXPECT_EQ(AnswerTo(get)->text, nullptr);
  EXPECT_EQ(AnswerTo(get + "more")->text, nullptr);
}

}  // namespace
}  // namespace mrd::host
