// One connection to the metrics' address.
#ifndef MRD_DAEMON_HOST_METRICS_HTTP_CONNECTION_H_
#define MRD_DAEMON_HOST_METRICS_HTTP_CONNECTION_H_

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>

#include "daemon/host/metrics/page.h"
#include "daemon/ipc/event.h"
#include "daemon/memory/disposer.h"
#include "daemon/unique_fd.h"

namespace mrd::host {

// The thread of its loop.
class HttpConnection {
 public:
  // `over` is called when it is to be destroyed, which it may do; not before Start has returned
  // true.
  HttpConnection(sd_event* loop, Page& page, memory::Disposer& disposer, UniqueFd socket,
                 std::chrono::milliseconds whole, std::function<void()> over);
  ~HttpConnection();
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // False: it cannot go on, and is to be destroyed.
  bool Start();

 private:
  enum State { kReading, kWriting, kWaiting };  // kWaiting: for the peer to have read all.

  // They return false where it is over.
  bool OnReady();
  bool Read();
  bool Write();
  void Watch(uint32_t events);
  void Over();

  sd_event* const loop_;
  Page& page_;
  memory::Disposer& disposer_;
  UniqueFd socket_;
  const uid_t uid_;
  const std::chrono::milliseconds whole_;
  const std::function<void()> over_;
  State state_ = kReading;
  std::string request_;
  size_t dropped_ = 0;  // Bytes that came after the request.
  std::string head_;
  Page::Text body_;
  size_t sent_ = 0;  // Of both.
  ipc::EventSource ready_;
  ipc::EventSource too_late_;
};

}  // namespace mrd::host

#endif  // MRD_DAEMON_HOST_METRICS_HTTP_CONNECTION_H_
