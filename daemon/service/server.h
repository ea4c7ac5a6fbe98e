// The gRPC side: services on a completion queue that a few threads poll. Connections are handed in;
// it opens no port.
#ifndef MRD_DAEMON_SERVICE_SERVER_H_
#define MRD_DAEMON_SERVICE_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "daemon/broker/broker.h"
#include "daemon/service/call_stats.h"
#include "daemon/unique_fd.h"

namespace mrd::service {

// The largest request. The largest that means something is Register of 10,000 ranges: four numbers
// of up to ten bytes each, 46 bytes a range, and some kilobytes of names and devices. Parsed, a
// hostile one takes fifty times as much.
inline constexpr uint32_t kMostMessageBytes = 512 << 10;

struct ServerOptions {
  // A connection without a call in flight is closed after this: a client that connects and says
  // nothing, too.
  std::chrono::milliseconds idle{60000};
  // What gRPC may hold in bytes over all connections, requests that are not complete included.
  // Beyond it idle connections are closed and calls cancelled until it is kept. As much again may
  // wait in answers that clients do not read. 0: a 64th of the machine's memory, at least 256 MiB.
  uint64_t memory = 0;
  // Where admins attach, for the refusal of others.
  std::string admin_socket = "/run/mrd-admin/attach.sock";
  // Told of each call, by the name of its request message ("RegisterRequest"), as its answer is
  // handed to gRPC: the time since the request had been parsed. From any thread; may be empty.
  std::function<void(const std::string& request, std::chrono::nanoseconds took)> observe;
  // Counts the calls of each method; may be null. Outlives the server.
  CallTable* calls = nullptr;
  // What GetMetrics answers: calls back once, from any thread, and does not block its caller.
  // Empty: the method is not there.
  TextSource metrics;
  // What ReloadPolicy does. Reads a file: called on a thread of the registrar. Empty: the method is
  // not there.
  std::function<absl::Status()> reload_policy;
};

// Thread-safe.
class Server {
 public:
  // `broker` outlives it.
  static std::unique_ptr<Server> Start(broker::Broker& broker, ServerOptions options);

  virtual ~Server() = default;

  // Serves this connected stream socket. gRPC owns it from now on, and shuts it down when it is
  // done with it. `user`: see policy::Match. `on_abuse` is told, from any thread, of what its
  // client did when it is ended for that.
  virtual void Serve(UniqueFd connection, uint32_t user,
                     std::function<void(const char* what)> on_abuse) = 0;

  // It has ended. `connection`: any descriptor of it.
  virtual void Ended(int connection) = 0;

  // Calls `answered` once, from a thread that serves calls, in its turn after what is in their
  // queue already: whether they do what they are for. Never where all of them are stuck, or the
  // server is shut down.
  virtual void Ping(std::function<void()> answered) = 0;

  // To be called about every second: cancels answers that are not read, forgets what is over.
  virtual void Sweep() = 0;

  // Ends every connection and call, then the threads. REQUIRES: no call waits for the broker any
  // more.
  virtual void Shutdown() = 0;
};

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_SERVER_H_
