#include "tests/e2e/http2.h"

#include <poll.h>
#include <sys/socket.h>

#include "absl/strings/escaping.h"
#include "tests/e2e/attach_socket.h"

namespace mrd::e2e {
namespace {

constexpr unsigned char kEndStream = 1;
constexpr unsigned char kEndHeaders = 4;

uint32_t Number(const std::string& text, size_t from, size_t bytes) {
  uint32_t value = 0;
  for (size_t i = from; i < from + bytes; ++i) value = value << 8 | static_cast<uint8_t>(text[i]);
  return value;
}

// A literal header field without indexing, with a new name (RFC 7541, 6.2.2); no Huffman coding.
std::string Header(const std::string& name, const std::string& value) {
  Require(name.size() < 127 && value.size() < 127, "a short header");
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

}  // namespace

std::string Http2::BigEndian(uint32_t value, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    text += static_cast<char>(value >> shift);
  return text;
}

std::string Http2::Encode(const Frame& frame) {
  return BigEndian(frame.payload.size(), 3) + static_cast<char>(frame.type) +
         static_cast<char>(frame.flags) + BigEndian(frame.stream, 4) + frame.payload;
}

std::string Http2::CallHeaders(const std::string& path, const std::string& token) {
  std::string headers = Header(":method", "POST") + Header(":scheme", "http") +
                        Header(":path", path) + Header(":authority", "localhost") +
                        Header("te", "trailers") + Header("content-type", "application/grpc");
  if (!token.empty()) headers += Header("mrd-session-bin", absl::Base64Escape(token));
  return headers;
}

Http2::Http2(const std::string& dir, uint32_t window)
    : fd_(Connect(dir + "/mrd.sock", SOCK_STREAM)) {
  constexpr uint32_t kInitialWindowSize = 4;
  SendBytes(kPreface);
  Send({kSettings, 0, 0, BigEndian(kInitialWindowSize, 2) + BigEndian(window, 4)});
}

bool Http2::SendBytes(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t each = send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (each <= 0) return false;
    sent += each;
  }
  return true;
}

bool Http2::Send(const Frame& frame) { return SendBytes(Encode(frame)); }

bool Http2::Call(uint32_t stream, const std::string& path, const std::string& token,
                 const std::string& message) {
  // An uncompressed message with its length before it.
  const std::string body = std::string(1, '\0') + BigEndian(message.size(), 4) + message;
  return Send({kHeaders, kEndHeaders, stream, CallHeaders(path, token)}) &&
         Send({kData, kEndStream, stream, body});
}

bool Http2::Fill(size_t bytes, Clock::time_point deadline) {
  while (unread_.size() < bytes) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now()).count();
    pollfd poll_fd{fd_.get(), POLLIN, 0};
    if (left < 0 || poll(&poll_fd, 1, static_cast<int>(left)) != 1) return false;
    char buffer[65536];
    const ssize_t length = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (length <= 0) {
      ended_ = true;
      return false;
    }
    unread_.append(buffer, length);
  }
  return true;
}

std::optional<Http2::Frame> Http2::Read(milliseconds within) {
  const auto deadline = Clock::now() + within;
  if (!Fill(9, deadline)) return std::nullopt;
  const size_t length = Number(unread_, 0, 3);
  if (!Fill(9 + length, deadline)) return std::nullopt;
  Frame frame{static_cast<unsigned char>(unread_[3]), static_cast<unsigned char>(unread_[4]),
              Number(unread_, 5, 4), unread_.substr(9, length)};
  unread_.erase(0, 9 + length);
  return frame;
}

std::optional<Http2::Frame> Http2::ReadType(Type type, milliseconds within) {
  const auto deadline = Clock::now() + within;
  for (;;) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    auto frame = Read(left);
    if (!frame || frame->type == type) return frame;
  }
}

bool Http2::IsClosed(milliseconds within) {
  const auto deadline = Clock::now() + within;
  do {
    unread_.clear();
  } while (Fill(1, deadline));
  return ended_;
}

}  // namespace mrd::e2e
