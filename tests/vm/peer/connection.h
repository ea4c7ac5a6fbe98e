// One rdma_cm connection, made from either side, and what the peer holds on it.

#ifndef TESTS_VM_PEER_CONNECTION_H_
#define TESTS_VM_PEER_CONNECTION_H_

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "data.h"

struct region {
  uint64_t addr;
  uint32_t rkey;
  uint32_t length;
};

struct memory {
  uint8_t* bytes;
  size_t length;
  struct ibv_mr* mr;
};

struct options {
  const char* connect;
  const char* listen;
  const char* probe;
  const char* bind;
  bool have_addr, have_rkey, have_length;
  struct region region;
  bool have_serve;
  struct data serve;
  bool reject;
  bool expect_refused;
  double timeout;
};

struct peer {
  const struct options* options;
  struct rdma_event_channel* events;
  struct rdma_cm_id* listener;
  struct rdma_cm_id* id;
  struct ibv_pd* pd;
  struct ibv_comp_channel* completions;
  struct ibv_cq* cq;
  struct memory scratch;  // this side of transfers
  struct memory served;
  struct region remote;
  bool remote_known;
  bool connected;
  bool refused;          // by the other side
  const char* ended_by;  // the event that ended the connection, or NULL
  uint64_t next_wr_id;
  int done;
  int unexpected;
};

// Connects, or listens and accepts, as the options say, and prints a line for each step. True if
// the connection is up, or was rejected as --reject asks. Call tear_down in any case.
bool set_up(struct peer* peer);

// Ends the connection if it is up and destroys all that the peer holds.
void tear_down(struct peer* peer);

// Whether rdma_cm can bind the address to a device with an active port. Prints a line.
bool probe(const char* address);

// Takes note of all rdma_cm events that came; of these only an end of the connection matters.
void handle_events(struct peer* peer);

// By what was noted so far.
bool is_up(const struct peer* peer);

// False at the deadline, or when a signal asked to stop.
bool wait_for_end(struct peer* peer, double deadline);

// When what begins now must have ended.
double op_deadline(const struct peer* peer);

// Makes peer->scratch at least that long; what was in it is lost if it was shorter.
bool need_scratch(struct peer* peer, size_t length);

#endif  // TESTS_VM_PEER_CONNECTION_H_
