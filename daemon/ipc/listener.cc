#include "daemon/ipc/listener.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace mrd::ipc {
namespace {

constexpr int kAtOnce = 64;  // Then other sources have their turn.
constexpr std::chrono::milliseconds kPause{100};
constexpr uint32_t kNobody = UINT32_MAX;  // No process has this uid.

}  // namespace

Listener::Listener(sd_event* loop, UniqueFd socket, memory::Disposer& disposer,
                   std::function<void(UniqueFd)> accepted)
    : disposer_(disposer),
      socket_(std::move(socket)),
      accepted_(std::move(accepted)),
      readable_(OrDie({loop, socket_.get(), EPOLLIN, [this](uint32_t) { Accept(); }},
                      "a listening socket")),
      pause_(OrDie({loop, kPause, [this] { readable_.SetEnabled(true); }}, "a listening socket")) {}

Listener::~Listener() {
  readable_.reset();
  disposer_.Close(kNobody, std::move(socket_));
}

void Listener::Accept() {
  for (int i = 0; i < kAtOnce; ++i) {
    UniqueFd connection(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection) {
      accepted_(std::move(connection));
      continue;
    }
    if (errno == EAGAIN) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      // The connection stays in the queue, and the socket readable: without a pause this loop would
      // spin.
      warnings_.Warn(0, absl::StrCat("cannot accept a connection: ", strerror(errno),
                                     "; raise LimitNOFILE if this goes on"));
      readable_.SetEnabled(false);
      pause_.SetAgain(kPause);
      return;
    }
    // Others (ECONNABORTED ...) are of that connection alone.
  }
}

}  // namespace mrd::ipc
