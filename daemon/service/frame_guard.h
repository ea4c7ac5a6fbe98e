// What a client may do to one HTTP/2 connection. gRPC 1.51 has no bound for some of what a peer can
// make it keep or do without a call and without a token; this counts those frames (RFC 9113, 10.5).
#ifndef MRD_DAEMON_SERVICE_FRAME_GUARD_H_
#define MRD_DAEMON_SERVICE_FRAME_GUARD_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

#include "daemon/mutex.h"
#include "daemon/service/frame_reader.h"

namespace mrd::service {

// So much at once, and so much more a second.
class TokenBucket {
 public:
  using Clock = std::chrono::steady_clock;

  // Full at first.
  TokenBucket(double capacity, double per_second, Clock::time_point now)
      : capacity_(capacity), per_second_(per_second), tokens_(capacity), refilled_(now) {}

  // False: it was empty.
  bool Take(Clock::time_point now);
  void Add(double tokens) { tokens_ += tokens; }  // Beyond the capacity: lost at the next Take.

 private:
  const double capacity_;
  const double per_second_;
  double tokens_;
  Clock::time_point refilled_;
};

// What all connections of a user have under way. Thread-safe.
struct UserCalls {
  std::atomic<uint32_t> connections{0};
  std::atomic<uint32_t> streams{0};
  std::atomic<uint64_t> request_bytes{0};  // Of requests that are not complete yet.
};

struct FrameLimits {
  uint32_t streams;            // Of a connection, at a time.
  uint64_t bytes_of_requests;  // That are not complete, of a user. gRPC's own bound, its resource
                               // quota, is one that many connections at once overrun.
};

// Thread-safe: one thread may read from the connection while another writes to it.
class FrameGuard {
 public:
  using Clock = TokenBucket::Clock;

  // Each takes gRPC some 16 KiB, whether or not the request is ever complete.
  static constexpr uint32_t kMostStreamsOfUser = 4096;
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
  // Frames that bring nothing on, WINDOW_UPDATE among them. Each call may have some.
  static constexpr int kMostIdle = 10000;
  static constexpr int kIdleASecond = 1000;
  static constexpr int kIdleACall = 16;
  // Of a client that leaves: one, or two where it does so gracefully.
  static constexpr int kMostGoAways = 4;

  // gRPC refuses calls beyond `limits.streams` only once the client has acknowledged that number;
  // until then this does.
  FrameGuard(const FrameLimits& limits, std::shared_ptr<UserCalls> user,
             Clock::time_point now = Clock::now());
  ~FrameGuard();

  // These bytes came from the client. Null, or what about them is too much: then the connection is
  // to be ended, and nothing more is to be looked at.
  const char* Received(const char* bytes, size_t length, Clock::time_point now = Clock::now());

  // Something is going out: first of all gRPC's own SETTINGS, with the number of streams.
  void Sending() { sent_ = true; }
  // These bytes have gone out.
  void Sent(const char* bytes, size_t length);

  // The connection is over, and with it all calls.
  void SetOver();

 private:
  const char* Look(const FrameHeader& frame, Clock::time_point now) MRD_REQUIRES(mutex_);
  const char* LookAtHeaders(const FrameHeader& frame, Clock::time_point now) MRD_REQUIRES(mutex_);
  const char* LookAtData(const FrameHeader& frame) MRD_REQUIRES(mutex_);
  void RequestEnds(uint64_t* bytes) MRD_REQUIRES(mutex_);
  void CloseStream(uint32_t stream) MRD_REQUIRES(mutex_);

  const FrameLimits limits_;
  const std::shared_ptr<UserCalls> user_;
  std::atomic<bool> sent_{false};
  Mutex mutex_;
  FrameReader received_ MRD_GUARDED_BY(mutex_);
  FrameReader going_out_ MRD_GUARDED_BY(mutex_);
  bool acknowledged_ MRD_GUARDED_BY(mutex_) = false;
  uint32_t early_streams_ MRD_GUARDED_BY(mutex_) = 0;
  uint32_t last_stream_ MRD_GUARDED_BY(mutex_) = 0;
  // Streams that have not ended, with the bytes of their requests until those are complete.
  std::unordered_map<uint32_t, uint64_t> open_ MRD_GUARDED_BY(mutex_);
  uint64_t request_bytes_ MRD_GUARDED_BY(mutex_) = 0;  // Of all of them.
  bool over_ MRD_GUARDED_BY(mutex_) = false;
  size_t block_bytes_ MRD_GUARDED_BY(mutex_) = 0;
  int goaways_ MRD_GUARDED_BY(mutex_) = 0;
  TokenBucket pings_ MRD_GUARDED_BY(mutex_);
  TokenBucket resets_ MRD_GUARDED_BY(mutex_);
  TokenBucket idle_ MRD_GUARDED_BY(mutex_);
};

}  // namespace mrd::service

#endif  // MRD_DAEMON_SERVICE_FRAME_GUARD_H_
