#include "daemon/service/frame_guard.h"

#include <algorithm>
#include <utility>

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

FrameGuard::FrameGuard(const FrameLimits& limits, std::shared_ptr<UserCalls> user,
                       Clock::time_point now)
    : limits_(limits),
      user_(std::move(user)),
      received_(kPrefaceBytes),
      going_out_(0),
      pings_(kMostPings, kPingsASecond, now),
      resets_(kMostResets, kResetsASecond, now),
      idle_(kMostIdle, kIdleASecond, now) {
  user_->connections.fetch_add(1);
}

FrameGuard::~FrameGuard() { SetOver(); }

void FrameGuard::SetOver() {
  MutexLock lock(mutex_);
  user_->streams.fetch_sub(open_.size());
  open_.clear();
  user_->request_bytes.fetch_sub(std::exchange(request_bytes_, 0));
  if (!std::exchange(over_, true)) user_->connections.fetch_sub(1);
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
      if (const char* const too_much = LookAtData(frame)) return too_much;
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
  if (!acknowledged_ && ++early_streams_ > limits_.streams) {
    return "more calls than may run at once, before it acknowledged how many may";
  }
  // gRPC passes over those of old streams and of even ones: they are no calls.
  if (frame.stream % 2 == 0 || frame.stream <= last_stream_) {
    return idle_.Take(now) ? nullptr : kTooIdle;
  }
  last_stream_ = frame.stream;
  pings_.Add(1);
  idle_.Add(kIdleACall);
  open_[frame.stream] = 0;
  if (user_->streams.fetch_add(1) >= kMostStreamsOfUser) {
    return "more calls than a user may have under way";
  }
  return nullptr;
}

const char* FrameGuard::LookAtData(const FrameHeader& frame) {
  const auto stream = open_.find(frame.stream);
  if (stream == open_.end()) return nullptr;
  if ((frame.flags & FrameHeader::kEndStream) != 0) {
    RequestEnds(&stream->second);
    return nullptr;
  }
  stream->second += frame.length;
  request_bytes_ += frame.length;
  const uint64_t of_user = user_->request_bytes.fetch_add(frame.length) + frame.length;
  if (of_user <= limits_.bytes_of_requests) return nullptr;
  // Whoever has less than its share of them is not to suffer for the user's other connections.
  if (request_bytes_ * user_->connections < of_user) return nullptr;
  return "more of requests that are not complete than a user may have";
}

void FrameGuard::RequestEnds(uint64_t* bytes) {
  user_->request_bytes.fetch_sub(*bytes);
  request_bytes_ -= *bytes;
  *bytes = 0;
}

void FrameGuard::CloseStream(uint32_t stream) {
  const auto found = open_.find(stream);
  if (found == open_.end()) return;
  RequestEnds(&found->second);
  open_.erase(found);
  user_->streams.fetch_sub(1);
}

}  // namespace mrd::service
