// An established connection of the verbs fabric.
#ifndef MRD_DAEMON_FABRIC_VERBS_CONNECTION_H_
#define MRD_DAEMON_FABRIC_VERBS_CONNECTION_H_

#include <functional>
#include <memory>

#include "daemon/fabric/event_loop.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/cm.h"
#include "daemon/fabric/verbs/cm_id.h"

namespace mrd::fabric::verbs {

class VerbsConnection final : public Connection {
 public:
  // Loop thread only; `id` is established, and nobody watches it any more. `spec`: its `left` and
  // `event` are moved.
  VerbsConnection(Cm& cm, std::unique_ptr<CmId> id, ConnectionInfo info, ConnectionSpec& spec);
  ~VerbsConnection() override;

  const ConnectionInfo& info() const override { return info_; }
  ConnectionHandles handles() const override { return id_->handles(); }

  // Right after it was made. False: the loop cannot watch it, nobody would learn that the peer
  // left, and it must not be given to anybody.
  bool watched() const { return watch_ != 0; }
  // Its id, to be ended elsewhere. Loop thread only.
  std::unique_ptr<CmId> Release();

 private:
  void OnReadable();
  void Left(bool error);

  Cm& cm_;
  std::unique_ptr<CmId> id_;
  const ConnectionInfo info_;
  // The loop thread's own.
  std::function<void(bool error)> left_;
  std::function<void(bool waits)> event_;
  EventLoop::WatchId watch_;
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_CONNECTION_H_
