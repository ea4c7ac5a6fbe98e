#include "daemon/fabric/soft/loopback_port.h"

#include <errno.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/fabric/soft/loopback_link.h"
#include "daemon/fabric/soft/soft_device.h"
#include "mrd/v1/status.h"

namespace mrd::fabric {
namespace {

absl::Status NobodyCame() {
  return MakeError(v1::WAIT_ENDED, "nobody came to connect with in the time given",
                   {.advice = "Try again, or wait longer"});
}

absl::Status NotAccepted(uint32_t port) {
  return MakeError(v1::WAIT_ENDED,
                   absl::StrCat("the peer that listens on port ", port,
                                " of device soft0 did not accept in the time given"),
                   {.advice = "Have it call Accept, or wait longer"});
}

absl::Status BacklogFull(uint32_t port, size_t backlog, size_t waiting) {
  return MakeError(
      v1::CONNECTION_FAILED,
      absl::StrCat("the backlog of ", backlog, " of port ", port, " of device soft0 is full"),
      {.errno_value = ECONNREFUSED,
       .limit_name = absl::StrCat("backlog of port ", port),
       .limit = backlog,
       .used = waiting,
       .advice = "Accept faster, or give a larger backlog"});
}

absl::Status ListenerEnded() {
  return MakeError(v1::ENDPOINT_UNKNOWN, "the listening endpoint has ended",
                   {.advice = "Listen again"});
}

}  // namespace

absl::Status LoopbackRefused(uint32_t port) {
  return MakeError(v1::CONNECTION_FAILED,
                   absl::StrCat("nobody takes connections on port ", port, " of device soft0"),
                   {.errno_value = ECONNREFUSED,
                    .advice = "Start the listening endpoint first; soft0 connects endpoints of "
                              "one daemon only"});
}

void LoopbackPort::Accept(ConnectionSpec spec, EstablishedCallback done) {
  if (closed_) {
    FailAttempt(spec, done, ListenerEnded());
    return;
  }
  Enqueue(accepts_, {std::move(spec), std::move(done), {}, {}});
  Match();
}

void LoopbackPort::Request(ConnectionSpec spec, EstablishedCallback done, ConnectionInfo info) {
  if (closed_ || requests_.size() >= backlog_) {
    FailAttempt(spec, done,
                closed_ ? LoopbackRefused(info_.local_port)
                        : BacklogFull(info_.local_port, backlog_, requests_.size()));
    return;
  }
  Enqueue(requests_, {std::move(spec), std::move(done), std::move(info), {}});
  Match();
}

void LoopbackPort::Close() {
  closed_ = true;
  while (!accepts_.empty()) Fail(accepts_, accepts_.begin(), ListenerEnded());
  while (!requests_.empty()) {
    Fail(requests_, requests_.begin(), LoopbackRefused(info_.local_port));
  }
}

absl::Status LoopbackPort::WaitEnded(const Queue& queue) const {
  return &queue == &accepts_ ? NobodyCame() : NotAccepted(info_.local_port);
}

void LoopbackPort::Enqueue(Queue& queue, Attempt attempt) {
  const auto it = queue.insert(queue.end(), std::move(attempt));
  it->timer =
      loop_.At(it->spec.deadline, [this, &queue, it] { Fail(queue, it, WaitEnded(queue)); });
}

LoopbackPort::Attempt LoopbackPort::Dequeue(Queue& queue, Queue::iterator it) {
  loop_.Cancel(it->timer);
  Attempt attempt = std::move(*it);
  queue.erase(it);
  return attempt;
}

void LoopbackPort::Fail(Queue& queue, Queue::iterator it, absl::Status status) {
  Attempt attempt = Dequeue(queue, it);
  FailAttempt(attempt.spec, attempt.done, std::move(status));
}

bool LoopbackPort::DropUnwanted(Queue& queue) {
  while (!queue.empty()) {
    const ConnectionSpec& spec = queue.front().spec;
    if (!spec.wanted || spec.wanted()) return true;
    Fail(queue, queue.begin(), WaitEnded(queue));
  }
  return false;
}

void LoopbackPort::Match() {
  while (!accepts_.empty() && !requests_.empty()) {
    if (!DropUnwanted(accepts_) || !DropUnwanted(requests_)) continue;
    // Dropping called back, which may have ended this port.
    if (accepts_.empty() || requests_.empty()) continue;
    Attempt accept = Dequeue(accepts_, accepts_.begin());
    Pair(std::move(accept), Dequeue(requests_, requests_.begin()));
  }
}

void LoopbackPort::Pair(Attempt accept, Attempt request) {
  auto accept_domain = accept.spec.domain(kSoftDevice);
  auto request_domain = request.spec.domain(kSoftDevice);
  if (!accept_domain.ok() || !request_domain.ok()) {
    // Each side is told its own fault; the other that the connection came to nothing.
    FailAttempt(accept.spec, accept.done,
                !accept_domain.ok()
                    ? accept_domain.status()
                    : MakeError(v1::CONNECTION_FAILED, "the connecting side gave up",
                                {.advice = "Accept again"}));
    FailAttempt(request.spec, request.done,
                !request_domain.ok() ? request_domain.status() : LoopbackRefused(info_.local_port));
    return;
  }
  ConnectionInfo info = info_;
  info.device = kSoftDevice;
  info.generation = kSoftGeneration;
  info.peer_address = request.info.local_address;
  info.peer_port = request.info.local_port;
  info.qp_num = request.info.qp_num + 1;
  EstablishLoopback(
      loop_,
      {std::move(info), *std::move(accept_domain), std::move(accept.spec.left),
       std::move(accept.done), std::move(request.spec.private_data)},
      {std::move(request.info), *std::move(request_domain), std::move(request.spec.left),
       std::move(request.done), std::move(accept.spec.private_data)});
}

}  // namespace mrd::fabric
