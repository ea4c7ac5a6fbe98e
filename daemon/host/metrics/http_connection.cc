#include "daemon/host/metrics/http_connection.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <string_view>
#include <utility>

#include "daemon/host/metrics/http_request.h"
#include "daemon/ipc/end_connection.h"
#include "daemon/ipc/packet.h"
#include "daemon/ipc/peer.h"

namespace mrd::host {
namespace {

constexpr size_t kMostDropped = 64 << 10;

static_assert(kMostRequestBytes == ipc::kMostPacketBytes, "Receive() takes no more at once");

// Whose descriptors it sends: of TCP nobody's, since there are none.
uid_t UidOf(int socket) {
  ucred peer;
  socklen_t length = sizeof peer;
  int domain = 0;
  socklen_t domain_length = sizeof domain;
  getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &domain_length);
  const bool known =
      domain == AF_UNIX && getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  return known ? peer.uid : ipc::kOverflowUid;
}

}  // namespace

HttpConnection::HttpConnection(sd_event* loop, Page& page, memory::Disposer& disposer,
                               UniqueFd socket, std::chrono::milliseconds whole,
                               std::function<void()> over)
    : loop_(loop),
      page_(page),
      disposer_(disposer),
      socket_(std::move(socket)),
      uid_(UidOf(socket_.get())),
      whole_(whole),
      over_(std::move(over)) {
  // Else a read would drop a byte that was sent out of band, with its descriptors, unseen.
  const int on = 1;
  setsockopt(socket_.get(), SOL_SOCKET, SO_OOBINLINE, &on, sizeof on);
}

HttpConnection::~HttpConnection() {
  ready_.reset();
  too_late_.reset();
  ipc::EndConnection(std::move(socket_), uid_, disposer_);
}

bool HttpConnection::Start() {
  too_late_ = ipc::EventSource(loop_, whole_, [this] { Over(); });
  // The request has mostly come already.
  if (!too_late_ || !OnReady()) return false;
  if (state_ == kReading) Watch(EPOLLIN);
  return static_cast<bool>(ready_);
}

void HttpConnection::Watch(uint32_t events) {
  ready_.reset();  // epoll takes a descriptor once.
  ready_ = ipc::EventSource(loop_, socket_.get(), events, [this](uint32_t) {
    if (!OnReady()) Over();
  });
}

void HttpConnection::Over() {
  const auto over = over_;  // It destroys this.
  over();
}

bool HttpConnection::OnReady() { return state_ == kWriting ? Write() : Read(); }

bool HttpConnection::Read() {
  for (;;) {
    ipc::Packet packet;
    const ipc::Received received = ipc::Receive(socket_.get(), &packet);
    if (!packet.fds.empty()) {
      for (UniqueFd& fd : packet.fds) disposer_.Close(uid_, std::move(fd));
      return false;
    }
    if (received == ipc::Received::kHangUp) return false;
    if (received == ipc::Received::kNothing) return true;
    if (state_ == kWaiting) {
      dropped_ += kMostRequestBytes;
      if (dropped_ > kMostDropped) return false;
      continue;
    }
    if (received == ipc::Received::kMalformed) {
      request_.resize(kMostRequestBytes, '.');  // More than may come: what it is does not matter.
    } else {
      request_ += packet.bytes;
    }
    if (const auto answer = AnswerTo(request_)) {
      body_ = answer->text ? std::make_shared<const std::string>(answer->text) : page_.Get();
      head_ = HeadOf(*answer, body_->size());
      if (answer->head) body_ = std::make_shared<const std::string>();
      state_ = kWriting;
      return Write();
    }
  }
}

bool HttpConnection::Write() {
  const size_t all = head_.size() + body_->size();
  while (sent_ < all) {
    const std::string_view rest = sent_ < head_.size()
                                      ? std::string_view(head_).substr(sent_)
                                      : std::string_view(*body_).substr(sent_ - head_.size());
    const ssize_t sent = send(socket_.get(), rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      Watch(EPOLLOUT);
      return static_cast<bool>(ready_);
    }
    if (sent < 0) return false;
    sent_ += sent;
  }
  body_ = nullptr;
  // A close with something unread would reset the connection, and with it drop the answer.
  state_ = kWaiting;
  shutdown(socket_.get(), SHUT_WR);
  Watch(EPOLLIN);
  return ready_ && Read();
}

}  // namespace mrd::host
