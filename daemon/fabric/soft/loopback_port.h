// One listening port: Accepts that wait for a request, or requests that wait for an Accept.
#ifndef MRD_DAEMON_FABRIC_SOFT_LOOPBACK_PORT_H_
#define MRD_DAEMON_FABRIC_SOFT_LOOPBACK_PORT_H_

#include <cstdint>
#include <list>
#include <utility>

#include "daemon/fabric/event_loop.h"
#include "daemon/fabric/fabric.h"

namespace mrd::fabric {

// What a connecting side gets when nobody listens.
absl::Status LoopbackRefused(uint32_t port);

// Loop thread only.
class LoopbackPort {
 public:
  LoopbackPort(EventLoop& loop, ConnectionInfo info, size_t backlog)
      : loop_(loop), info_(std::move(info)), backlog_(backlog) {}
  LoopbackPort(const LoopbackPort&) = delete;
  LoopbackPort& operator=(const LoopbackPort&) = delete;

  const ConnectionInfo& info() const { return info_; }

  void Accept(ConnectionSpec spec, EstablishedCallback done);
  // From a connecting side; `info` is what it will see. The accepting side's queue pair has the
  // next number after its.
  void Request(ConnectionSpec spec, EstablishedCallback done, ConnectionInfo info);
  // Ends all that wait; what comes later is refused.
  void Close();

 private:
  struct Attempt {
    ConnectionSpec spec;
    EstablishedCallback done;
    ConnectionInfo info;  // Of a request.
    EventLoop::TimerId timer;
  };
  using Queue = std::list<Attempt>;  // Timers hold iterators.

  // What an attempt of this queue is told whose time is over.
  absl::Status WaitEnded(const Queue& queue) const;
  void Enqueue(Queue& queue, Attempt attempt);
  Attempt Dequeue(Queue& queue, Queue::iterator it);
  void Fail(Queue& queue, Queue::iterator it, absl::Status status);
  // The first one that is still wanted, if any.
  bool DropUnwanted(Queue& queue);
  void Match();
  void Pair(Attempt accept, Attempt request);

  EventLoop& loop_;
  const ConnectionInfo info_;
  const size_t backlog_;
  Queue accepts_;
  Queue requests_;
  bool closed_ = false;
};

}  // namespace mrd::fabric

#endif  // MRD_DAEMON_FABRIC_SOFT_LOOPBACK_PORT_H_
