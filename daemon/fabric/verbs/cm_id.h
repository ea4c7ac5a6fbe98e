// One rdma_cm id with what belongs to it: its own event channel, its completion queue and its queue
// pair.
#ifndef MRD_DAEMON_FABRIC_VERBS_CM_ID_H_
#define MRD_DAEMON_FABRIC_VERBS_CM_ID_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "daemon/fabric/fabric.h"
#include "daemon/fabric/verbs/api.h"
#include "daemon/fabric/verbs/device.h"

namespace mrd::fabric::verbs {

// A CM event, copied and acknowledged: rdma_destroy_id(3) and rdma_migrate_id(3) wait until every
// event of the id is acknowledged, so none is ever left open.
struct CmEvent {
  rdma_cm_event_type type = RDMA_CM_EVENT_ADDR_RESOLVED;
  int status = 0;            // 0, a negative errno, or the CM's reason of a rejection.
  rdma_cm_id* id = nullptr;  // Of a CONNECT_REQUEST: the new id, on the listener's channel still.
  std::string private_data;

  // The errno that `status` stands for; 0: none.
  int Error() const;
};

// Thread safety: one thread at a time.
class CmId {
 public:
  // A new id on a channel of its own.
  static Result<std::unique_ptr<CmId>> Create(Api& api);
  // Takes `id` from a CONNECT_REQUEST and moves it to a channel of its own; destroys it when that
  // fails.
  static Result<std::unique_ptr<CmId>> Adopt(Api& api, rdma_cm_id* id);

  // Ends queue pair, id, completion queue and channel, in the only order that works. May block;
  // rejects a request that was not accepted, and ends a connection.
  ~CmId();
  CmId(const CmId&) = delete;
  CmId& operator=(const CmId&) = delete;

  rdma_cm_id* id() const { return id_; }
  int fd() const { return channel_->fd; }
  uint32_t qp_num() const { return id_->qp != nullptr ? id_->qp->qp_num : 0; }

  // The next event; nothing when there is none now.
  std::optional<CmEvent> NextEvent();

  // Makes the queue pair, in `domain`, which must be one of `device`, which must be that of the id.
  // The domain stays until the queue pair has ended.
  absl::Status CreateQp(Device& device, std::shared_ptr<Domain> domain);

  ConnectionHandles handles() const;

  // What the id's addresses are now. `device` is not set.
  ConnectionInfo Info() const;

 private:
  CmId(Api& api, rdma_event_channel* channel, rdma_cm_id* id)
      : api_(api), channel_(channel), id_(id) {}

  Api& api_;
  rdma_event_channel* const channel_;
  rdma_cm_id* const id_;
  Device* device_ = nullptr;
  std::shared_ptr<Domain> domain_;
  ibv_cq* cq_ = nullptr;
};

}  // namespace mrd::fabric::verbs

#endif  // MRD_DAEMON_FABRIC_VERBS_CM_ID_H_
