// One attempt to connect: resolve the address, resolve the route, make the queue pair, connect, and
// see what comes.
#ifndef MRD_DAEMON_FABRIC_VERBS_CONNECT_ATTEMPT_H_
#define MRD_DAEMON_FABRIC_VERBS_CONNECT_ATTEMPT_H_

#include <sys/socket.h>

#include <memory>
#include <string>

#include "absl/functional/any_invocable.h"
#include "daemon/fabric/event_loop.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/cm.h"
#include "daemon/fabric/verbs/cm_id.h"

namespace mrd::fabric::verbs {

// Loop thread only, but for construction and destruction.
class ConnectAttempt : public std::enable_shared_from_this<ConnectAttempt> {
 public:
  // `source` is AF_UNSPEC where the routing table decides.
  ConnectAttempt(Cm& cm, sockaddr_storage source, sockaddr_storage destination, ConnectionSpec spec,
                 EstablishedCallback done);
  ConnectAttempt(const ConnectAttempt&) = delete;
  ConnectAttempt& operator=(const ConnectAttempt&) = delete;

  // `finished` is called once, before the `done` of the attempt.
  void Start(absl::AnyInvocable<void()> finished);

  // Gives the result, once; later calls do nothing. A failure is told when nothing is left of the
  // attempt or, where the kernel holds it up, at once.
  void Finish(absl::StatusOr<Established> result);

  // The device was given up: fails where it is on that.
  void OnGone(const Device& device);

 private:
  void OnReadable();
  // True: to be called again with the next event.
  bool OnEvent(const CmEvent& event);
  void End(Workers::Function then);
  void Watch();
  void Unwatch();
  int RemainingMs() const;
  absl::Status Error(const char* what, int error) const;
  void Connect();
  // In a thread that may block, while nobody watches the id.
  absl::Status MakeConnection(Device& device, std::shared_ptr<Domain> domain);
  // What came of it.
  void Connected(const absl::Status& status);

  Cm& cm_;
  sockaddr_storage source_;
  sockaddr_storage destination_;
  ConnectionSpec spec_;
  EstablishedCallback done_;
  absl::AnyInvocable<void()> finished_;
  std::unique_ptr<CmId> id_;
  EventLoop::WatchId watch_ = 0;
  EventLoop::TimerId timer_;
  bool connecting_ = false;  // A thread that may block has the id.
  bool asked_ = false;       // The peer was asked, and nothing has come of it yet.
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_CONNECT_ATTEMPT_H_
