// A daemon for tests of the client library: an attach socket that does what a test's script says,
// and services whose answers tests write. Real sockets, real gRPC; nothing behind them.
#ifndef MRD_TESTS_CLIENT_FAKE_DAEMON_H_
#define MRD_TESTS_CLIENT_FAKE_DAEMON_H_

#include <sys/socket.h>

#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/unique_fd.h"
#include "mrd/v1/attach.pb.h"

namespace mrd::testing {

// One packet of a client, with what came beside it.
struct ClientSaid {
  bool hung_up = false;
  v1::ClientPacket packet;
  std::vector<internal::UniqueFd> fds;
  std::optional<ucred> credentials;
};

class FakeDaemon final {
 public:
  // What the daemon does with one connection, on a thread of its own; the connection is closed when
  // it returns.
  using Script = std::function<void(int socket)>;

  explicit FakeDaemon(Script script = [](int socket) { ServeUntilHangUp(socket); });
  ~FakeDaemon();
  FakeDaemon(const FakeDaemon&) = delete;
  FakeDaemon& operator=(const FakeDaemon&) = delete;

  // A directory of its own with a short name, removed in the end.
  const std::string& dir() const { return dir_; }

  // Hangs up on every client and takes no more.
  void Stop();

  // Takes clients again, at the same path. REQUIRES: stopped.
  void Start(Script script);

  // Building blocks of scripts.
  static ClientSaid Receive(int socket);
  static void Send(int socket, const v1::DaemonPacket& packet);
  static void SendBytes(int socket, const std::string& bytes);
  static v1::DaemonPacket WelcomePacket();
  // Reads the hello and welcomes.
  static void Welcome(int socket);
  // Welcomes, then reads and forgets what comes.
  static void ServeUntilHangUp(int socket);

 private:
  void AcceptLoop(const Script& script);

  std::string dir_;
  internal::UniqueFd listener_;
  std::thread acceptor_;
  std::mutex mutex_;
  std::list<internal::UniqueFd> sockets_;  // Guarded by mutex_.
  std::vector<std::thread> threads_;       // Guarded by mutex_.
};

// Of this process.
int CountFds();
int CountMappings();

}  // namespace mrd::testing

#endif  // MRD_TESTS_CLIENT_FAKE_DAEMON_H_
