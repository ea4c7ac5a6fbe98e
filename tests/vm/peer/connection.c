#include "connection.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "util.h"

enum { kReadDepth = 4 };  // READs under way at once, offered and asked for

// The private data: see the usage.
struct wire_region {
  uint64_t addr;
  uint32_t rkey;
  uint32_t length;
} __attribute__((packed));

static struct wire_region encode_region(const struct region* region) {
  return (struct wire_region){htobe64(region->addr), htobe32(region->rkey),
                              htobe32(region->length)};
}

// On InfiniBand and RoCE the receiver sees the private data padded with zeros to the message's
// room: a length of at least the layout's is all that can be asked for, and all zeros is none.
static bool decode_region(const void* data, size_t length, struct region* region) {
  struct wire_region wire;
  if (data == NULL || length < sizeof wire) return false;
  memcpy(&wire, data, sizeof wire);
  *region = (struct region){be64toh(wire.addr), be32toh(wire.rkey), be32toh(wire.length)};
  return region->addr != 0 || region->rkey != 0 || region->length != 0;
}

double op_deadline(const struct peer* peer) { return now() + peer->options->timeout; }

// Reads one event if one is there. The caller acknowledges it.
static struct rdma_cm_event* next_event(struct peer* peer) {
  struct rdma_cm_event* event;
  return rdma_get_cm_event(peer->events, &event) == 0 ? event : NULL;
}

static struct rdma_cm_event* wait_for_event(struct peer* peer, double deadline) {
  for (;;) {
    struct rdma_cm_event* event = next_event(peer);
    if (event != NULL) return event;
    int left = milliseconds_until(deadline);
    if (left == 0 || stop_requested) return NULL;
    struct pollfd fd = {peer->events->fd, POLLIN, 0};
    poll(&fd, 1, left);
  }
}

void handle_events(struct peer* peer) {
  struct rdma_cm_event* event;
  while ((event = next_event(peer)) != NULL) {
    if (event->id == peer->id && peer->ended_by == NULL &&
        (event->event == RDMA_CM_EVENT_DISCONNECTED ||
         event->event == RDMA_CM_EVENT_DEVICE_REMOVAL ||
         event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT)) {
      peer->ended_by = rdma_event_str(event->event);
    }
    // Somebody who comes while the one connection stands: to be told, not to be left waiting.
    struct rdma_cm_id* late = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
    rdma_ack_cm_event(event);
    if (late != NULL) {
      rdma_reject(late, NULL, 0);
      rdma_destroy_id(late);
    }
    // This moves the queue pair to error, so that work under way is flushed instead of retried.
    if (peer->ended_by != NULL && peer->connected) {
      peer->connected = false;
      rdma_disconnect(peer->id);
    }
  }
}

bool is_up(const struct peer* peer) { return peer->connected && peer->ended_by == NULL; }

bool wait_for_end(struct peer* peer, double deadline) {
  for (;;) {
    handle_events(peer);
    if (!is_up(peer)) return true;
    int left = milliseconds_until(deadline);
    if (left == 0 || stop_requested) return false;
    struct pollfd fd = {peer->events->fd, POLLIN, 0};
    poll(&fd, 1, left);
  }
}

static bool register_memory(struct peer* peer, struct memory* memory, size_t length, int access) {
  void* bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return false;
  struct ibv_mr* mr = ibv_reg_mr(peer->pd, bytes, length, access);
  if (mr == NULL) {
    munmap(bytes, length);
    return false;
  }
  *memory = (struct memory){bytes, length, mr};
  return true;
}

static void release_memory(struct memory* memory) {
  if (memory->mr == NULL) return;
  ibv_dereg_mr(memory->mr);
  munmap(memory->bytes, memory->length);
  memset(memory, 0, sizeof *memory);
}

bool need_scratch(struct peer* peer, size_t length) {
  if (peer->scratch.length >= length) return true;
  release_memory(&peer->scratch);
  return register_memory(peer, &peer->scratch, length, IBV_ACCESS_LOCAL_WRITE);
}

// Creates what a connection needs on the device of peer->id. NULL, or what failed.
static const char* create_resources(struct peer* peer) {
  struct ibv_context* context = peer->id->verbs;
  if ((peer->pd = ibv_alloc_pd(context)) == NULL) return "ibv_alloc_pd";
  if ((peer->completions = ibv_create_comp_channel(context)) == NULL) {
    return "ibv_create_comp_channel";
  }
  fcntl(peer->completions->fd, F_SETFL, O_NONBLOCK);
  if ((peer->cq = ibv_create_cq(context, 16, NULL, peer->completions, 0)) == NULL) {
    return "ibv_create_cq";
  }
  struct ibv_qp_init_attr attributes = {
      .send_cq = peer->cq,
      .recv_cq = peer->cq,
      .qp_type = IBV_QPT_RC,
      .cap = {.max_send_wr = 8, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
      .sq_sig_all = 1,
  };
  if (rdma_create_qp(peer->id, peer->pd, &attributes) != 0) return "rdma_create_qp";
  if (peer->options->have_serve) {
    const struct data* serve = &peer->options->serve;
    int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    if (!register_memory(peer, &peer->served, serve->length, access)) return "ibv_reg_mr";
    memcpy(peer->served.bytes, serve->bytes, serve->length);
  }
  return NULL;
}

void tear_down(struct peer* peer) {
  if (peer->connected) {
    rdma_disconnect(peer->id);
    wait_for_end(peer, now() + 1);
  }
  release_memory(&peer->scratch);
  release_memory(&peer->served);
  if (peer->id != NULL && peer->id->qp != NULL) rdma_destroy_qp(peer->id);
  if (peer->cq != NULL) ibv_destroy_cq(peer->cq);
  if (peer->completions != NULL) ibv_destroy_comp_channel(peer->completions);
  if (peer->id != NULL) rdma_destroy_id(peer->id);
  if (peer->listener != NULL) rdma_destroy_id(peer->listener);
  if (peer->pd != NULL) ibv_dealloc_pd(peer->pd);
  if (peer->events != NULL) rdma_destroy_event_channel(peer->events);
}

static uint8_t smaller(int a, int b) { return (uint8_t)(a < b ? a : b); }

// `wire` must live until the parameters have been used.
static struct rdma_conn_param connection_parameters(struct peer* peer, struct wire_region* wire) {
  struct ibv_device_attr device;
  memset(&device, 0, sizeof device);
  ibv_query_device(peer->id->verbs, &device);
  struct rdma_conn_param parameters = {
      .responder_resources = smaller(kReadDepth, device.max_qp_rd_atom),
      .initiator_depth = smaller(kReadDepth, device.max_qp_init_rd_atom),
      .retry_count = 7,
      .rnr_retry_count = 7,
  };
  if (peer->served.mr != NULL) {
    struct region region = {(uintptr_t)peer->served.bytes, peer->served.mr->rkey,
                            (uint32_t)peer->served.length};
    *wire = encode_region(&region);
    parameters.private_data = wire;
    parameters.private_data_len = sizeof *wire;
  }
  return parameters;
}

static void take_region(struct peer* peer, const struct rdma_conn_param* parameters) {
  const struct options* options = peer->options;
  struct region region = {0, 0, 0};
  bool received = decode_region(parameters->private_data, parameters->private_data_len, &region);
  if (options->have_addr) region.addr = options->region.addr;
  if (options->have_rkey) region.rkey = options->region.rkey;
  if (options->have_length) region.length = options->region.length;
  peer->remote = region;
  peer->remote_known = received || (options->have_addr && options->have_rkey);
}

// ADDR, ADDR:PORT or [ADDR]:PORT.
static struct addrinfo* parse_address(const char* text, bool with_port) {
  char host[128];
  const char* port = NULL;
  if (strlen(text) >= sizeof host) fail_usage("address too long: %s", text);
  strcpy(host, text);
  if (with_port) {
    char* colon = strrchr(host, ':');
    if (colon == NULL) fail_usage("no port in %s", text);
    *colon = '\0';
    port = text + (colon - host) + 1;
  }
  char* start = host;
  size_t length = strlen(host);
  if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
    host[length - 1] = '\0';
    start = host + 1;
  }
  struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
  struct addrinfo* result;
  int code = getaddrinfo(start, port, &hints, &result);
  if (code != 0) fail_usage("address %s: %s", text, gai_strerror(code));
  return result;
}

// What the set-up of a connection came to; `status` is "ok" or what went wrong.
static void report_connection(struct peer* peer, const char* op, const char* status, int detail) {
  const char* device =
      peer->id != NULL && peer->id->verbs != NULL ? peer->id->verbs->device->name : "none";
  printf("op=%s status=%s detail=%d device=%s remote_addr=0x%" PRIx64 " rkey=0x%x length=%u\n", op,
         as_value(status), detail, device, peer->remote.addr, peer->remote.rkey,
         peer->remote.length);
}

static bool fail_connection(struct peer* peer, const char* op, const char* status, int detail) {
  peer->refused = detail == ECONNREFUSED || detail == ECONNRESET;
  report_connection(peer, op, status, detail);
  return false;
}

// Waits for one event, which must be `wanted`. The caller acknowledges it.
static struct rdma_cm_event* expect_event(struct peer* peer, const char* op,
                                          enum rdma_cm_event_type wanted) {
  struct rdma_cm_event* event = wait_for_event(peer, op_deadline(peer));
  if (event == NULL) {
    report_connection(peer, op, "timeout", 0);
  } else if (event->event != wanted) {
    // For REJECTED the status is the reason: of the CM's REJ, or an errno on iWARP.
    report_connection(peer, op, rdma_event_str(event->event), event->status);
    peer->refused = event->event == RDMA_CM_EVENT_REJECTED;
    rdma_ack_cm_event(event);
    event = NULL;
  }
  return event;
}

static bool expect_and_ack(struct peer* peer, const char* op, enum rdma_cm_event_type wanted) {
  struct rdma_cm_event* event = expect_event(peer, op, wanted);
  if (event != NULL) rdma_ack_cm_event(event);
  return event != NULL;
}

static bool connect_peer(struct peer* peer) {
  const char* op = "connect";
  int timeout_ms = (int)(peer->options->timeout * 1000);
  struct addrinfo* destination = parse_address(peer->options->connect, true);
  struct addrinfo* source =
      peer->options->bind != NULL ? parse_address(peer->options->bind, false) : NULL;
  int result = rdma_create_id(peer->events, &peer->id, NULL, RDMA_PS_TCP);
  if (result == 0) {
    result = rdma_resolve_addr(peer->id, source != NULL ? source->ai_addr : NULL,
                               destination->ai_addr, timeout_ms);
  }
  int error = errno;
  freeaddrinfo(destination);
  if (source != NULL) freeaddrinfo(source);
  if (result != 0) return fail_connection(peer, op, strerror(error), error);

  if (!expect_and_ack(peer, op, RDMA_CM_EVENT_ADDR_RESOLVED)) return false;
  if (rdma_resolve_route(peer->id, timeout_ms) != 0) {
    return fail_connection(peer, op, strerror(errno), errno);
  }
  if (!expect_and_ack(peer, op, RDMA_CM_EVENT_ROUTE_RESOLVED)) return false;
  const char* failed = create_resources(peer);
  if (failed != NULL) return fail_connection(peer, op, failed, errno);

  struct wire_region wire;
  struct rdma_conn_param parameters = connection_parameters(peer, &wire);
  if (rdma_connect(peer->id, &parameters) != 0) {
    return fail_connection(peer, op, strerror(errno), errno);
  }
  struct rdma_cm_event* event = expect_event(peer, op, RDMA_CM_EVENT_ESTABLISHED);
  if (event == NULL) return false;
  take_region(peer, &event->param.conn);
  rdma_ack_cm_event(event);
  peer->connected = true;
  report_connection(peer, op, "ok", 0);
  return true;
}

static bool listen_for_peer(struct peer* peer) {
  struct addrinfo* address = parse_address(peer->options->listen, true);
  int result = rdma_create_id(peer->events, &peer->listener, NULL, RDMA_PS_TCP);
  if (result == 0) result = rdma_bind_addr(peer->listener, address->ai_addr);
  if (result == 0) result = rdma_listen(peer->listener, 1);
  int error = errno;
  freeaddrinfo(address);
  if (result != 0) return fail_connection(peer, "listen", strerror(error), error);
  printf("op=listen status=ok port=%u\n", be16toh(rdma_get_src_port(peer->listener)));
  return true;
}

static bool accept_peer(struct peer* peer) {
  const char* op = "accept";
  struct rdma_cm_event* event = expect_event(peer, op, RDMA_CM_EVENT_CONNECT_REQUEST);
  if (event == NULL) return false;
  peer->id = event->id;
  take_region(peer, &event->param.conn);
  struct rdma_conn_param requested = event->param.conn;
  rdma_ack_cm_event(event);
  if (peer->options->reject) {
    int result = rdma_reject(peer->id, NULL, 0);
    if (result != 0) return fail_connection(peer, op, strerror(errno), errno);
    report_connection(peer, op, "rejected", 0);
    return true;
  }
  const char* failed = create_resources(peer);
  if (failed != NULL) return fail_connection(peer, op, failed, errno);

  struct wire_region wire;
  struct rdma_conn_param parameters = connection_parameters(peer, &wire);
  // Not more than the other side has.
  parameters.responder_resources =
      smaller(parameters.responder_resources, requested.responder_resources);
  parameters.initiator_depth = smaller(parameters.initiator_depth, requested.initiator_depth);
  if (rdma_accept(peer->id, &parameters) != 0) {
    return fail_connection(peer, op, strerror(errno), errno);
  }
  if (!expect_and_ack(peer, op, RDMA_CM_EVENT_ESTABLISHED)) return false;
  peer->connected = true;
  report_connection(peer, op, "ok", 0);
  return true;
}

bool set_up(struct peer* peer) {
  peer->events = rdma_create_event_channel();
  if (peer->events == NULL) return fail_connection(peer, "open", strerror(errno), errno);
  fcntl(peer->events->fd, F_SETFL, O_NONBLOCK);
  if (peer->options->connect != NULL) return connect_peer(peer);
  return listen_for_peer(peer) && accept_peer(peer);
}

bool probe(const char* text) {
  struct addrinfo* address = parse_address(text, false);
  struct rdma_event_channel* events = rdma_create_event_channel();
  struct rdma_cm_id* id = NULL;
  const char* status = "ok";
  const char* device = "none";
  struct ibv_port_attr port;
  if (events == NULL) {
    status = "no_rdma_cm";
  } else if (rdma_create_id(events, &id, NULL, RDMA_PS_TCP) != 0 ||
             rdma_bind_addr(id, address->ai_addr) != 0) {
    status = strerror(errno);
  } else if (id->verbs == NULL) {
    status = "no_device";  // a wildcard or loopback address binds without one
  } else {
    device = id->verbs->device->name;
    if (ibv_query_port(id->verbs, id->port_num, &port) != 0) {
      status = "ibv_query_port";
    } else if (port.state != IBV_PORT_ACTIVE) {
      status = ibv_port_state_str(port.state);
    }
  }
  printf("op=probe status=%s device=%s\n", as_value(status), device);
  if (id != NULL) rdma_destroy_id(id);
  if (events != NULL) rdma_destroy_event_channel(events);
  freeaddrinfo(address);
  return strcmp(status, "ok") == 0;
}
