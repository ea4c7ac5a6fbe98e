// Finds the frames in the bytes of an HTTP/2 connection (RFC 9113, 4.1).
#ifndef MRD_DAEMON_SERVICE_FRAME_READER_H_
#define MRD_DAEMON_SERVICE_FRAME_READER_H_

#include <string.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace mrd::service {

struct FrameHeader {
  enum Type : unsigned char {
    kData = 0,
    kHeaders = 1,
    kResetStream = 3,
    kSettings = 4,
    kPing = 6,
    kGoAway = 7,
    kContinuation = 9,
  };
  static constexpr unsigned char kAck = 1;        // Of SETTINGS and PING.
  static constexpr unsigned char kEndStream = 1;  // Of DATA and HEADERS.
  static constexpr unsigned char kPadded = 8;

  size_t length;
  unsigned char type;
  unsigned char flags;
  uint32_t stream;
};

// Sees one direction's bytes, in order, and keeps none of them. Not thread-safe.
class FrameReader {
 public:
  // `preface`: bytes before the first frame.
  explicit FrameReader(size_t preface) : skip_(preface) {}

  // Takes bytes off the front of these until it has the header of a frame; false: all are taken,
  // and there is none.
  bool Next(const char** bytes, size_t* length, FrameHeader* header) {
    const size_t skipped = std::min(skip_, *length);
    skip_ -= skipped;
    *bytes += skipped;
    *length -= skipped;
    const size_t taken = std::min(sizeof header_ - taken_, *length);
    memcpy(header_ + taken_, *bytes, taken);
    taken_ += taken;
    *bytes += taken;
    *length -= taken;
    if (taken_ < sizeof header_) return false;
    taken_ = 0;
    *header = Decode();
    skip_ = header->length;
    return true;
  }

 private:
  FrameHeader Decode() const {
    const auto byte = [this](int i) { return static_cast<uint32_t>(header_[i]); };
    return {.length = byte(0) << 16 | byte(1) << 8 | byte(2),
            .type = header_[3],
            .flags = header_[4],
            .stream = (byte(5) & 0x7f) << 24 | byte(6) << 16 | byte(7) << 8 | byte(8)};
  }

  size_t skip_;  // Bytes to come that are no frame's header.
  unsigned char header_[9];
  size_t taken_ = 0;  // Of header_.
};

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_FRAME_READER_H_
