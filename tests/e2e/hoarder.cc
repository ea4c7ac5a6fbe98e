#include "tests/e2e/hoarder.h"

#include <errno.h>
#include <sys/socket.h>

#include <algorithm>

#include "tests/e2e/attach_socket.h"
#include "tests/e2e/http2.h"

namespace mrd::e2e {
namespace {

constexpr unsigned char kEndHeaders = 4;
constexpr unsigned char kAck = 1;
constexpr size_t kMostFrame = 16384;
constexpr size_t kMostUnsent = 1 << 16;

uint32_t Number(const std::string& text, size_t from, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = from; i < from + bytes; ++i) value = value << 8 | static_cast<uint8_t>(text[i]);
  return value;
}

}  // namespace

Hoarder::Hoarder(const std::string& dir, int streams, uint32_t bytes)
    : fd_(Connect(dir + "/mrd.sock", SOCK_STREAM)), unsent_(Http2::kPreface) {
  unsent_ += Http2::Encode({Http2::kSettings, 0, 0, ""});
  const std::string headers = Http2::CallHeaders("/mrd.v1.Registration/Register", "");
  for (int i = 0; i < streams; ++i) {
    const uint32_t id = 2 * i + 1;
    unsent_ += Http2::Encode({Http2::kHeaders, kEndHeaders, id, headers});
    const std::string prefix = std::string(1, '\0') + Http2::BigEndian(bytes, 4);
    unsent_ += Http2::Encode({Http2::kData, 0, id, prefix});
    window_ -= 5;
    streams_[id] = {initial_window_ - 5, bytes - 1};
  }
}

bool Hoarder::Pump() {
  Read();
  for (auto& [id, stream] : streams_) {
    if (unsent_.size() > kMostUnsent) break;
    const int64_t size = std::min<int64_t>({window_, stream.window, stream.left, kMostFrame});
    if (size <= 0) continue;
    unsent_ += Http2::Encode({Http2::kData, 0, id, std::string(size, 'x')});
    window_ -= size;
    stream.window -= size;
    stream.left -= size;
  }
  const ssize_t sent = send(fd_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent > 0) unsent_.erase(0, sent);
  if (sent < 0 && errno != EAGAIN) over_ = true;
  return !over_;
}

void Hoarder::Read() {
  char buffer[65536];
  const ssize_t length = recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
  if (length == 0 || (length < 0 && errno != EAGAIN)) over_ = true;
  if (length <= 0) return;
  unread_.append(buffer, length);
  while (unread_.size() >= 9) {
    const size_t size = Number(unread_, 0, 3);
    if (unread_.size() < 9 + size) return;
    Handle(unread_[3], unread_[4], Number(unread_, 5, 4), unread_.substr(9, size));
    unread_.erase(0, 9 + size);
  }
}

void Hoarder::Handle(unsigned char type, unsigned char flags, uint32_t stream,
                     const std::string& payload) {
  constexpr uint32_t kInitialWindowSize = 4;
  switch (type) {
    case Http2::kWindowUpdate:
      if (stream == 0) {
        window_ += Number(payload, 0, 4);
      } else if (const auto found = streams_.find(stream); found != streams_.end()) {
        found->second.window += Number(payload, 0, 4);
      }
      break;
    case Http2::kSettings:
      if ((flags & kAck) != 0) break;
      for (size_t at = 0; at + 6 <= payload.size(); at += 6) {
        if (Number(payload, at, 2) != kInitialWindowSize) continue;
        const int64_t now = Number(payload, at + 2, 4);
        for (auto& [id, each] : streams_) each.window += now - initial_window_;
        initial_window_ = now;
      }
      unsent_ += Http2::Encode({Http2::kSettings, kAck, 0, ""});
      break;
    case Http2::kPing:  // The daemon measures the connection, to grant more.
      if ((flags & kAck) == 0) unsent_ += Http2::Encode({Http2::kPing, kAck, 0, payload});
      break;
    case Http2::kResetStream:
      streams_.erase(stream);
      break;
    default:
      break;
  }
}

}  // namespace mrd::e2e
