#include "daemon/service/frame_guard.h"

#include <string.h>

#include <algorithm>

namespace mrd::service {
namespace {

// RFC 9113, section 6.
enum FrameType : unsigned char {
  kHeaders = 1,
  kResetStream = 3,
  kSettings = 4,
  kPing = 6,
  kContinuation = 9,
};
constexpr unsigned char kAck = 1;

}  // namespace

bool TokenBucket::Take(Clock::time_point now) {
  const std::chrono::duration<double> since = now - refilled_;
  tokens_ = std::min(capacity_, tokens_ + since.count() * per_second_);
  refilled_ = now;
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

const char* FrameGuard::Look(const char* bytes, size_t length, Clock::time_point now) {
  while (length > 0) {
    if (skip_ > 0) {
      const size_t skipped = std::min(skip_, length);
      skip_ -= skipped;
      bytes += skipped;
      length -= skipped;
      continue;
    }
    const size_t taken = std::min(kFrameHeaderBytes - header_bytes_, length);
    memcpy(header_ + header_bytes_, bytes, taken);
    header_bytes_ += taken;
    bytes += taken;
    length -= taken;
    if (header_bytes_ < kFrameHeaderBytes) break;
    header_bytes_ = 0;
    if (const char* const too_much = LookAtHeader(now)) return too_much;
  }
  return nullptr;
}

const char* FrameGuard::LookAtHeader(Clock::time_point now) {
  skip_ = header_[0] << 16 | header_[1] << 8 | header_[2];
  const unsigned char type = header_[3];
  const unsigned char flags = header_[4];
  const uint32_t stream =
      (header_[5] & 0x7fu) << 24 | header_[6] << 16 | header_[7] << 8 | header_[8];
  switch (type) {
    case kHeaders:
      block_bytes_ = skip_;
      // gRPC passes over those of old streams and of even ones: they are no calls.
      if (stream % 2 == 1 && stream > last_stream_) {
        last_stream_ = stream;
        pings_.Add();
      }
      if (!acknowledged_ && ++early_streams_ > most_streams_) {
        return "more calls than may run at once, before it acknowledged how many may";
      }
      break;
    case kContinuation:
      block_bytes_ += skip_;
      break;
    case kSettings:
      if (flags & kAck) {
        // gRPC would take it for the defaults, which have no bound, and for all that it says later.
        if (!sent_) return "it acknowledged settings before any were sent";
        acknowledged_ = true;
        return nullptr;
      }
      [[fallthrough]];
    case kPing:
      if (!(flags & kAck) && !pings_.Take(now)) return "too many PING and SETTINGS frames";
      return nullptr;
    case kResetStream:
      if (!resets_.Take(now)) return "too many calls that are reset";
      return nullptr;
    default:
      return nullptr;
  }
  if (block_bytes_ > kMostHeaderBytes) return "metadata of more than 64 KiB";
  return nullptr;
}

}  // namespace mrd::service
