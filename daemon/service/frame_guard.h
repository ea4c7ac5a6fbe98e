// What a client may do to one HTTP/2 connection. gRPC 1.51 has no bound for some of what a peer can
// make it keep or do without a call and without a token; this counts those frames (RFC 9113, 10.5).
#ifndef MRD_DAEMON_SERVICE_FRAME_GUARD_H_
#define MRD_DAEMON_SERVICE_FRAME_GUARD_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace mrd::service {

class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;

  // Full at first.
  TokenBucket(double capacity, double per_second, Clock::time_point now)
      : capacity_(capacity), per_second_(per_second), tokens_(capacity), refilled_(now) {}

  // False: it was empty.
  bool Take(Clock::time_point now);
  void Add() { tokens_ += 1; }  // Lost at the next Take if it is beyond the capacity.

 private:
  const double capacity_;
  const double per_second_;
  double tokens_;
  Clock::time_point refilled_;
};

// Sees the bytes that a client sends, in order, and keeps none of them. Not thread-safe, but for
// Sent.
class FrameGuard {
 public:
  using Clock = TokenBucket::Clock;

  // HEADERS with its CONTINUATIONs. gRPC keeps all of a block until it ends, and only then looks at
  // the size of the metadata.
  static constexpr size_t kMostHeaderBytes = 64 << 10;
  // PING and SETTINGS are answered; gRPC 1.51 also notes each PING that it thinks too many in an
  // error text that it copies each time. A client may measure its bandwidth with a PING each call.
  static constexpr int kMostPings = 1000;
  static constexpr int kPingsASecond = 100;
  // A call that is reset at once has been taken all the same (CVE-2023-44487).
  static constexpr int kMostResets = 1000;
  static constexpr int kResetsASecond = 200;

  // gRPC refuses calls beyond `most_streams` at a time only once the client has acknowledged that
  // number; until then this does.
  explicit FrameGuard(uint32_t most_streams, Clock::time_point now = Clock::now())
      : most_streams_(most_streams),
        pings_(kMostPings, kPingsASecond, now),
        resets_(kMostResets, kResetsASecond, now) {}

  // Something goes out to the client: first of all gRPC's own SETTINGS, with the number of streams.
  void Sent() { sent_ = true; }

  // Null, or what about these bytes is too much: then the connection is to be ended, and nothing
  // more is to be looked at.
  const char* Look(const char* bytes, size_t length, Clock::time_point now = Clock::now());

 private:
  static constexpr size_t kPrefaceBytes = 24;  // "PRI * HTTP/2.0..."; gRPC looks at it.
  static constexpr size_t kFrameHeaderBytes = 9;

  const char* LookAtHeader(Clock::time_point now);

  const uint32_t most_streams_;
  size_t skip_ = kPrefaceBytes;  // Bytes to come that are no frame header.
  unsigned char header_[kFrameHeaderBytes];
  size_t header_bytes_ = 0;
  std::atomic<bool> sent_{false};
  bool acknowledged_ = false;
  uint32_t early_streams_ = 0;
  uint32_t last_stream_ = 0;
  size_t block_bytes_ = 0;
  TokenBucket pings_;
  TokenBucket resets_;
};

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_FRAME_GUARD_H_
