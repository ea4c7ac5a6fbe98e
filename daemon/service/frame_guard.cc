#include "daemon/service/frame_guard.h"

#include <algorithm>

namespace mrd::service {
namespace {

constexpr size_t kPrefaceBytes = 24;  // "PRI * HTTP/2.0..."; gRPC looks at it.
// A DATA frame of less brings little on.
constexpr size_t kFewBytes = 16;

constexpr char kTooIdle[] = "too many frames that bring nothing on";

}  // namespace

bool TokenBucket::Take(Clock::time_point now) {
  const std::chrono::duration<double> since = now - refilled_;
  tokens_ = std::min(capacity_, tokens_ + since.count() * per_second_);
  refilled_ = now;
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

FrameGuard::FrameGuard(uint32_t most_streams, std::shared_ptr<StreamCount> streams_of_user,
                       Clock::time_point now)
    : most_streams_(most_streams),
      streams_of_user_(std::move(streams_of_user)),
      received_(kPrefaceBytes),
      going_out_(0),
      pings_(kMostPings, kPingsASecond, now),
      resets_(kMostResets, kResetsASecond, now),
      idle_(kMostIdle, kIdleASecond, now) {}

FrameGuard::~FrameGuard() { ForgetStreams(); }

void FrameGuard::ForgetStreams() {
  MutexLock lock(mutex_);
  streams_of_user_->fetch_sub(open_.size());
  open_.clear();
}

const char* FrameGuard::Received(const char* bytes, size_t length, Clock::time_point now) {
  MutexLock lock(mutex_);
  FrameHeader frame;
  while (received_.Next(&bytes, &length, &frame)) {
    if (const char* const too_much = Look(frame, now)) return too_much;
  }
  return nullptr;
}

void FrameGuard::Sent(const char* bytes, size_t length) {
  MutexLock lock(mutex_);
  FrameHeader frame;
  while (going_out_.Next(&bytes, &length, &frame)) {
    const bool ends =
        frame.type == FrameHeader::kResetStream ||
        (frame.type == FrameHeader::kHeaders && (frame.flags & FrameHeader::kEndStream) != 0);
    if (ends) CloseStream(frame.stream);
  }
}

const char* FrameGuard::Look(const FrameHeader& frame, Clock::time_point now) {
  const bool ack = (frame.flags & FrameHeader::kAck) != 0;
  switch (frame.type) {
    case FrameHeader::kHeaders:
      return LookAtHeaders(frame, now);
    case FrameHeader::kContinuation:
      block_bytes_ += frame.length;
      if (block_bytes_ > kMostHeaderBytes) return "metadata of more than 64 KiB";
      break;
    case FrameHeader::kResetStream:
      CloseStream(frame.stream);
      return resets_.Take(now) ? nullptr : "too many calls that are reset";
    case FrameHeader::kGoAway:
      return ++goaways_ <= kMostGoAways ? nullptr : "too many GOAWAY frames";
    case FrameHeader::kSettings:
      // gRPC would take an early one for the defaults, which have no bound.
      if (ack && !sent_) return "it acknowledged settings before any were sent";
      if (ack) acknowledged_ = true;
      [[fallthrough]];
    case FrameHeader::kPing:
      if (ack) break;
      return pings_.Take(now) ? nullptr : "too many PING and SETTINGS frames";
    case FrameHeader::kData:
      if (frame.length >= kFewBytes && (frame.flags & FrameHeader::kPadded) == 0) return nullptr;
      if ((frame.flags & FrameHeader::kEndStream) != 0) return nullptr;
      break;
    default:
      break;
  }
  return idle_.Take(now) ? nullptr : kTooIdle;
}

const char* FrameGuard::LookAtHeaders(const FrameHeader& frame, Clock::time_point now) {
  block_bytes_ = frame.length;
  if (block_bytes_ > kMostHeaderBytes) return "metadata of more than 64 KiB";
  if (!acknowledged_ && ++early_streams_ > most_streams_) {
    return "more calls than may run at once, before it acknowledged how many may";
  }
  // gRPC passes over those of old streams and of even ones: they are no calls.
  if (frame.stream % 2 == 0 || frame.stream <= last_stream_) {
    return idle_.Take(now) ? nullptr : kTooIdle;
  }
  last_stream_ = frame.stream;
  pings_.Add(1);
  idle_.Add(kIdleACall);
  open_.insert(frame.stream);
  if (streams_of_user_->fetch_add(1) >= kMostStreamsOfUser) {
    return "more calls than a user may have under way";
  }
  return nullptr;
}

void FrameGuard::CloseStream(uint32_t stream) {
  if (open_.erase(stream) != 0) streams_of_user_->fetch_sub(1);
}

}  // namespace mrd::service
