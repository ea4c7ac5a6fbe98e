// A gRPC connection that is answered late.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/client.h"
#include "client/unique_fd.h"
#include "tests/client/fake_daemon.h"
#include "tests/client/fake_services.h"

namespace mrd::testing {
namespace {

using std::chrono::milliseconds;

// Connections to `dir`/mrd.sock, answered only after a while: a daemon on a busy machine.
class SlowDoor {
 public:
  SlowDoor(const std::string& dir, const std::string& behind, milliseconds delay)
      : listener_(Socket()), acceptor_([this, behind, delay] { Serve(behind, delay); }) {
    const sockaddr_un address = Address(dir + "/mrd.sock");
    unlink(address.sun_path);  // FakeDaemon's.
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    listening_.set_value();
  }
  ~SlowDoor() {
    shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    for (auto& thread : threads_) thread.join();
  }

 private:
  static internal::UniqueFd Socket() {
    return internal::UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }
  static sockaddr_un Address(const std::string& path) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
  }
  static void Copy(int from, int to) {
    char data[4096];
    for (ssize_t size; (size = read(from, data, sizeof(data))) > 0;) {
      if (send(to, data, size, MSG_NOSIGNAL) != size) break;
    }
    shutdown(from, SHUT_RDWR);
    shutdown(to, SHUT_RDWR);
  }
  void Serve(const std::string& behind, milliseconds delay) {
    listening_.get_future().wait();
    for (;;) {
      internal::UniqueFd outer(accept(listener_.get(), nullptr, nullptr));
      if (!outer.valid()) return;
      threads_.emplace_back([outer = std::move(outer), behind, delay] {
        std::this_thread::sleep_for(delay);
        const internal::UniqueFd inner = Socket();
        const sockaddr_un address = Address(behind + "/mrd.sock");
        if (connect(inner.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address))) {
          return;
        }
        std::thread back([&] { Copy(inner.get(), outer.get()); });
        Copy(outer.get(), inner.get());
        back.join();
      });
    }
  }

  internal::UniqueFd listener_;
  std::promise<void> listening_;
  std::vector<std::thread> threads_;  // Of the acceptor, until it has ended.
  std::thread acceptor_;
};

TEST(Connection, WaitsForADaemonThatIsSlowToAnswerIt) {
  FakeDaemon front, back;
  FakeServices services(back.dir());
  SlowDoor door(front.dir(), back.dir(), milliseconds(400));
  auto client =
      Client::Attach({.socket_dir = front.dir(), .call_timeout = std::chrono::seconds(5)});
  ASSERT_TRUE(client.ok()) << client.status();
  auto buffer = client->CreateBuffer(4096);
  const absl::Status status = client->RegMsgs(*buffer).status();
  EXPECT_TRUE(status.ok()) << status;
  client->Detach();
  client = absl::CancelledError();
}

}  // namespace
}  // namespace mrd::testing
