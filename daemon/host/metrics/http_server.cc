#include "daemon/host/metrics/http_server.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <systemd/sd-event.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/host/metrics/http_connection.h"
#include "daemon/ipc/event.h"
#include "daemon/ipc/listener.h"
#include "daemon/log.h"

namespace mrd::host {
namespace {

// Peers can have this thread work as much as they like; clients' calls go before it.
constexpr int kNice = 10;

class Connections {
 public:
  Connections(sd_event* loop, Page& page, memory::Disposer& disposer, HttpLimits limits)
      : loop_(loop), page_(page), disposer_(disposer), limits_(limits) {}

  void Accept(UniqueFd socket) {
    if (connections_.size() >= limits_.connections) connections_.erase(connections_.begin());
    const uint64_t id = next_id_++;
    auto connection =
        std::make_unique<HttpConnection>(loop_, page_, disposer_, std::move(socket), limits_.whole,
                                         [this, id] { connections_.erase(id); });
    if (connection->Start()) connections_.emplace(id, std::move(connection));
  }

 private:
  sd_event* const loop_;
  Page& page_;
  memory::Disposer& disposer_;
  const HttpLimits limits_;
  uint64_t next_id_ = 0;
  std::map<uint64_t, std::unique_ptr<HttpConnection>> connections_;  // The oldest first.
};

}  // namespace

HttpServer::HttpServer(Page& page, ListenSocket socket, memory::Disposer disposer,
                       HttpLimits limits)
    : page_(page),
      socket_(std::move(socket)),
      disposer_(std::move(disposer)),
      limits_(limits),
      end_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

HttpServer::~HttpServer() {
  eventfd_write(end_.get(), 1);
  thread_.join();
}

void HttpServer::Run() {
  setpriority(PRIO_PROCESS, gettid(), kNice);
  sd_event* loop = nullptr;
  int result = sd_event_new(&loop);
  if (result >= 0) {
    const ipc::EventSource end = ipc::OrDie(
        {loop, end_.get(), EPOLLIN, [loop](uint32_t) { sd_event_exit(loop, 0); }}, "metrics");
    Connections connections(loop, page_, disposer_, limits_);
    const ipc::Listener listener(loop, std::move(socket_.socket), disposer_,
                                 [&](UniqueFd fd) { connections.Accept(std::move(fd)); });
    result = sd_event_loop(loop);
  }
  if (result < 0) {
    log::Write(
        spdlog::level::err,
        absl::StrCat("metrics are not served any more at ", socket_.where, ": ", strerror(-result)),
        log::Fields().Errno(-result));
  }
  sd_event_unref(loop);
}

}  // namespace mrd::host
