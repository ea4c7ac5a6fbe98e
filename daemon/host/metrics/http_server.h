// Answers GET /metrics, on one thread with a loop of its own: whatever its peers do, the daemon's
// threads do not notice. Not a library's: none that Debian has reads a Unix socket in a way in
// which descriptors that a peer sends along cannot hang its thread (the close of some takes as long
// as their owner likes).
#ifndef MRD_DAEMON_HOST_METRICS_HTTP_SERVER_H_
#define MRD_DAEMON_HOST_METRICS_HTTP_SERVER_H_

#include <chrono>
#include <thread>

#include "daemon/host/metrics/listen_address.h"
#include "daemon/host/metrics/page.h"
#include "daemon/memory/disposer.h"
#include "daemon/unique_fd.h"

namespace mrd::host {

struct HttpLimits {
  // At once; one more ends the oldest, which a peer that is in earnest has not left waiting.
  size_t connections = 16;
  // From accept to the end, whatever the peer does.
  std::chrono::milliseconds whole{10000};
};

// One answer a connection, then it is closed.
class HttpServer {
 public:
  // `page` outlives it.
  HttpServer(Page& page, ListenSocket socket, memory::Disposer disposer, HttpLimits limits = {});
  // Ends its connections and its thread.
  ~HttpServer();

  const std::string& where() const { return socket_.where; }

 private:
  void Run();

  Page& page_;
  ListenSocket socket_;
  memory::Disposer disposer_;
  const HttpLimits limits_;
  const UniqueFd end_;  // An eventfd.
  std::thread thread_;
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_METRICS_HTTP_SERVER_H_
