#include "transfer.h"

#include <poll.h>
#include <string.h>

#include "util.h"

enum { kMaxTransfer = 1 << 20 };  // bytes of one request; rxe takes up to 8 MiB

static const double kFlushSeconds = 1.0;  // for the event or completion that follows an error

// Waits for the completion of `wr_id`. "ok" or what went wrong.
static const char* wait_for_completion(struct peer* peer, uint64_t wr_id, double deadline) {
  for (;;) {
    // Armed before the queue is looked at: a completion in between wakes the poll below.
    if (ibv_req_notify_cq(peer->cq, 0) != 0) return "ibv_req_notify_cq";
    struct ibv_wc completion;
    int count;
    while ((count = ibv_poll_cq(peer->cq, 1, &completion)) > 0) {
      if (completion.wr_id != wr_id) continue;  // of an operation whose deadline had passed
      if (completion.status == IBV_WC_SUCCESS) return "ok";
      // Work is flushed because the connection ends: let the event that says so come in.
      if (completion.status == IBV_WC_WR_FLUSH_ERR) wait_for_end(peer, now() + kFlushSeconds);
      return ibv_wc_status_str(completion.status);
    }
    if (count < 0) return "ibv_poll_cq";

    bool was_up = is_up(peer);
    handle_events(peer);
    if (was_up && !is_up(peer)) {
      // The completion should follow; if it does not, the end itself is the answer.
      double flush_deadline = now() + kFlushSeconds;
      if (flush_deadline < deadline) deadline = flush_deadline;
    }
    int left = milliseconds_until(deadline);
    if (left == 0) return is_up(peer) ? "timeout" : "disconnected";
    struct pollfd fds[] = {{peer->completions->fd, POLLIN, 0}, {peer->events->fd, POLLIN, 0}};
    poll(fds, 2, left);
    struct ibv_cq* cq;
    void* context;
    while (ibv_get_cq_event(peer->completions, &cq, &context) == 0) ibv_ack_cq_events(cq, 1);
  }
}

const char* transfer(struct peer* peer, enum ibv_wr_opcode opcode, size_t local, int64_t offset,
                     size_t length) {
  double deadline = op_deadline(peer);
  for (size_t done = 0; done < length;) {
    handle_events(peer);
    if (!is_up(peer)) return "disconnected";
    size_t part = length - done < kMaxTransfer ? length - done : kMaxTransfer;
    struct ibv_sge sge = {(uintptr_t)(peer->scratch.bytes + local + done), (uint32_t)part,
                          peer->scratch.mr->lkey};
    struct ibv_send_wr request = {
        .wr_id = ++peer->next_wr_id,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = peer->remote.addr + (uint64_t)offset + done,
                    .rkey = peer->remote.rkey},
    };
    struct ibv_send_wr* bad;
    int error = ibv_post_send(peer->id->qp, &request, &bad);
    if (error != 0) {
      // The queue pair is in error already; say so rather than EINVAL, if that is why.
      wait_for_end(peer, now() + kFlushSeconds);
      return is_up(peer) ? strerror(error) : "disconnected";
    }
    const char* status = wait_for_completion(peer, request.wr_id, deadline);
    if (strcmp(status, "ok") != 0) return status;
    done += part;
  }
  return "ok";
}
