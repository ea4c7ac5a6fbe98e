// A listening endpoint of the verbs fabric: Accepts that wait, connection requests that wait, and
// handshakes under way.
#ifndef MRD_DAEMON_FABRIC_VERBS_LISTENER_H_
#define MRD_DAEMON_FABRIC_VERBS_LISTENER_H_

#include <list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/fabric/event_loop.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/cm.h"
#include "daemon/fabric/verbs/cm_id.h"

namespace mrd::fabric::verbs {

absl::StatusOr<std::unique_ptr<Listener>> Listen(Cm& cm, const std::string& address, uint32_t port,
                                                 int backlog);

// Loop thread only. What a peer can make it hold is bounded: `backlog` requests, each for
// kRequestWait, and one handshake an Accept, for kHandshakeWait (on iWARP, where the kernel may
// hold on to it for longer, see Cm::EndHandshake: what the Accept's owner booked for it stays
// booked).
class ListenQueue {
 public:
  // A peer gives up by itself after 10 s (siw) or a minute (InfiniBand's CM).
  static constexpr std::chrono::seconds kRequestWait{30};
  static constexpr std::chrono::seconds kHandshakeWait{30};

  ListenQueue(Cm& cm, std::unique_ptr<CmId> id, size_t backlog);
  ListenQueue(const ListenQueue&) = delete;
  ListenQueue& operator=(const ListenQueue&) = delete;

  // Begins to read events. `self` is this: it stays until Close. False: the loop cannot watch it.
  bool Start(std::shared_ptr<ListenQueue> self);
  void Accept(ConnectionSpec spec, EstablishedCallback done);
  // Ends all that waits, and the id. Accepts are told `why`.
  void Close(const absl::Status& why);

 private:
  struct Waiting {  // An Accept.
    ConnectionSpec spec;
    EstablishedCallback done;
    EventLoop::TimerId timer;
  };
  struct Request {
    std::unique_ptr<CmId> id;
    std::string private_data;
    EventLoop::WatchId watch;
    EventLoop::TimerId timer;
  };
  struct Handshake {
    Waiting accept;
    Request request;
  };

  void OnReadable();
  void OnGone(const Device& device);
  void OnRequest(CmEvent event);
  void Match();
  void Answer(Waiting accept, Request request);
  static void Fail(Waiting accept, absl::Status status);
  // Ends one that the peer has not finished.
  void GiveUp(Handshake handshake, absl::Status status);
  void OnHandshake(std::list<Handshake>::iterator it);

  Waiting Take(std::list<Waiting>::iterator it);
  Request Take(std::list<Request>::iterator it);
  Handshake Take(std::list<Handshake>::iterator it);

  Cm& cm_;
  std::unique_ptr<CmId> id_;
  const size_t backlog_;
  EventLoop::WatchId watch_ = 0;
  uint64_t on_gone_ = 0;
  absl::Status closed_;         // Why.
  std::list<Waiting> accepts_;  // Timers and watches hold iterators.
  std::list<Request> requests_;
  std::list<Handshake> handshakes_;
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_LISTENER_H_
